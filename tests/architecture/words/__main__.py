"""Print the listed words of the tree: their number by folder, and where those of some paths are.

``python -m tests.architecture.words`` prints the numbers; with paths it lists their matches;
``--json`` prints either as data; ``--write`` lowers the numbers in budget.toml to what is there.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.architecture.words.count import budget, counts, matches, write_budget


def main() -> int:
    """Run the command; 1 where a folder holds more than it may."""
    parser = argparse.ArgumentParser(prog="tests.architecture.words", description=__doc__)
    parser.add_argument("paths", nargs="*", help="list the matches in files that start with these")
    parser.add_argument("--json", action="store_true", help="print data")
    parser.add_argument("--write", action="store_true", help="lower budget.toml to what is there")
    options = parser.parse_args()
    if options.write:
        write_budget(start=True)
    found, allowed = counts(), budget()
    if options.paths:
        listed = [match for match in matches() if match.path.startswith(tuple(options.paths))]
        if options.json:
            print(json.dumps([match._asdict() for match in listed], indent=1))
        else:
            for match in listed:
                print(f"{match.path}:{match.line}: {match.text!r}: say {match.say}")
            print(len(listed))
        return 0
    if options.json:
        print(json.dumps({"folders": dict(sorted(found.items())), "total": found.total()}))
    else:
        for name in sorted(found | allowed):
            print(f"{found[name]:6} of {allowed.get(name, 0):5} {name}")
        print(f"{found.total():6} of {sum(allowed.values()):5}")
    return int(any(found[name] > allowed.get(name, 0) for name in found))


if __name__ == "__main__":
    sys.exit(main())
