"""The calendar: a train's phases, and the dates of later trains."""

from __future__ import annotations

import calendar
import datetime
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the calendar; it lasts until the next one begins.

    Attributes:
        name: a word.
        days: when it begins, in days from the day of departure; negative before it.
        what: what is done in it.
        picks: kinds of change that a release branch may still take in it.
    """

    name: str
    days: int
    what: str
    picks: tuple[str, ...]

    def begins(self, departs: datetime.date) -> datetime.date:
        """Return the day on which it begins in the train that leaves on a day."""
        return departs + datetime.timedelta(days=self.days)


def later(departs: datetime.date, months: int) -> datetime.date:
    """Return the same weekday of the month some months on: a second Wednesday stays one.

    Where the later month has no fifth such day, its last is meant.
    """
    ordinal = (departs.day - 1) // 7
    year, month = divmod(departs.year * 12 + departs.month - 1 + months, 12)
    weeks = calendar.Calendar().monthdatescalendar(year, month + 1)
    days = [
        day
        for week in weeks
        for day in week
        if day.month == month + 1 and day.weekday() == departs.weekday()
    ]
    return days[min(ordinal, len(days) - 1)]
