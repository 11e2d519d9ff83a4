"""Memory by key that does not grow for ever."""

from accounts.bounded_cache import BoundedCache


def test_what_was_written_longest_ago_is_forgotten_first() -> None:
    memory: BoundedCache[str, int] = BoundedCache(2)
    for key in "abac":
        memory[key] = ord(key)
    assert [memory.get(key, 0) for key in "abc"] == [ord("a"), 0, ord("c")]
    assert len(memory) == 2
    memory.clear()
    assert (len(memory), memory.get("a", 0)) == (0, 0)
