"""Where two JSON values differ. Pure."""

from collections.abc import Iterator


def differences(one, other, place: str = "") -> Iterator[tuple]:
    """(key path, of the one, of the other) for each place where they differ; what only one has is None in the other."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), _below(place, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, _below(place, index))
    elif one != other:
        yield place, one, other


def _below(place: str, key) -> str:
    return f"{place}.{key}" if place else str(key)
