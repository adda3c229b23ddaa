"""Dates and times of RFC 3339 as regular expressions that know leap years, and where a leap second may be."""

from __future__ import annotations

_LONG = r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = r"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = r"02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = rf"(?:[0-9]{{4}}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_PART = r"(?:\.[0-9]+)?"
_USUAL = rf"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_PART}(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"


def _leap_second() -> str:
    """A leap second is the last of a day in UTC; told for offsets of whole hours, which is all that are written."""
    ways = [rf"23:59:60{_PART}[Zz]"]
    for hours in range(24):
        ways.append(rf"{(23 + hours) % 24:02}:59:60{_PART}\+{hours:02}:00")
        ways.append(rf"{(23 - hours) % 24:02}:59:60{_PART}-{hours:02}:00")
    return "|".join(ways)


PATTERNS = {"date": f"^{_DATE}$", "date-time": f"^{_DATE}[Tt](?:{_USUAL}|{_leap_second()})$"}
"""The formats that are better said so: to llguidance every February has 29 days, and every minute 60 seconds."""
