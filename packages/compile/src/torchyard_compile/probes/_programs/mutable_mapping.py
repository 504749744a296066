"""Dynamo traces a class of the user's that is a MutableMapping."""

from collections.abc import MutableMapping

import torch


class Table(MutableMapping):
    def __init__(self):
        self.items_ = {}

    def __getitem__(self, key):
        return self.items_[key]

    def __setitem__(self, key, value):
        self.items_[key] = value

    def __delitem__(self, key):
        del self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


def filled(x):
    table = Table()
    table["a"] = x + 1
    table.update(b=x * 2)
    return table["a"] + table.pop("b") * len(table)


x = torch.arange(3.0)
compiled = torch.compile(filled, backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(x), filled(x))
