"""The ground: keys, sequences, and how rows are cut into lists."""

import hashlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.components.keys import (
    canonical_json,
    content_key,
    file_sha256,
    fingerprint,
    key_of_pieces,
    rng,
    row_key,
    text_key,
)
from airgen.storage.records import flat_text, prompt_text, storable
from airgen.storage.sequences import Indexed, batched

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, min_size=2, max_size=6))
def test_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    assert content_key(value) == content_key(dict(reversed(list(value.items()))))


@given(JSON, JSON)
def test_different_values_have_different_keys(left: object, right: object) -> None:
    assert (content_key(left) == content_key(right)) == (canonical_json(left) == canonical_json(right))


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant"):
        content_key({"score": math.nan})


def test_keys_are_pinned() -> None:
    # A change of these would make every paid answer on every disk unreachable.
    assert text_key("airgen") == "ebbcd36ca903726a370e9e5bd73a8d42"
    assert content_key({"a": [1, "é"], "b": None}) == text_key('{"a":[1,"é"],"b":null}')
    assert row_key("query", "p", "f", 2) == text_key("query\x1fp\x1ff\x1f2")


def test_each_part_counts_and_parts_do_not_run_together() -> None:
    assert text_key("\ud800") != text_key("\ud801")  # lone surrogates have keys
    assert key_of_pieces(["air", "g\ud800", "en"]) == text_key("airg\ud800en")
    base = fingerprint(template="a", model="m")
    assert base == fingerprint(model="m", template="a") and len(base) == 16
    assert len({base, fingerprint(template="b", model="m"), fingerprint(template="a", model="n")}) == 3
    assert fingerprint(a=1) == content_key({"a": 1})[:16]
    assert row_key("ab", "c", "f") != row_key("a", "bc", "f")
    assert row_key("query", "p", "f") == row_key("query", "p", "f", 0)
    assert rng("a", 1).random() == rng("a", 1).random() != rng("a", 2).random()
    assert rng({"x": 1, "y": 2}).random() == rng({"y": 2, "x": 1}).random()
    assert rng("ab", "c").random() != rng("a", "bc").random()
    assert rng("airgen", 7).random() == rng("airgen\x1f7").random()
    assert rng("airgen", 7).getrandbits(32) == 1738957538  # pinned: all sampling hangs on it


def test_a_files_hash_is_that_of_its_bytes_read_in_blocks(tmp_path: Path) -> None:
    path, content, read = tmp_path / "f", bytes(range(256)) * 5_000, []
    path.write_bytes(content)
    wanted = hashlib.sha256(content).hexdigest()
    assert file_sha256(path) == wanted
    assert file_sha256(path, read.append) == wanted
    assert read == [1 << 20, len(content) - (1 << 20)]


# -- sequences --------------------------------------------------------------------------------------------------------


class Squares(Indexed[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def _item(self, place: int) -> int:
        assert 0 <= place < self.size
        return place * place


@pytest.mark.parametrize("size", [0, 1, 7])
def test_places_and_slices_are_those_of_a_list(size: int) -> None:
    made, expected = Squares(size), [place * place for place in range(size)]
    assert list(made) == expected and list(reversed(made)) == expected[::-1]
    assert [made[place] for place in range(-size, size)] == expected * 2
    for part in (slice(None), slice(1, -1), slice(None, None, -2), slice(-3, 99), slice(5, 2)):
        assert made[part] == expected[part]
    for beyond in (size, -size - 1):
        with pytest.raises(IndexError):
            made[beyond]


# -- batches ----------------------------------------------------------------------------------------------------------


def test_batches_hold_every_row_in_order() -> None:
    assert list(batched("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(batched(["aaa", "b", "cc", "d"], 3, len)) == [["aaa"], ["b", "cc"], ["d"]]
    assert list(batched([], 2)) == []


def test_texts_are_joined_with_their_titles_in_two_ways() -> None:
    assert flat_text("Wings", "They bend.") == "Wings They bend."
    assert prompt_text("Wings", "They bend.") == "Wings\n\nThey bend."
    assert flat_text("", "They bend.") == prompt_text(None, "They bend.") == "They bend."


def test_what_is_stored_has_no_lone_surrogates_and_no_nul() -> None:
    assert storable("a\ud800b\x00c") == "a\ufffdbc"
    assert storable("naïve") == "naïve"
