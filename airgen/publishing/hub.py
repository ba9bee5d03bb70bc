"""Calls to the Hub for publishing: temporary failures are retried, and others become one-line errors.

This wraps `huggingface_hub.HfApi`, which reads the endpoint and token from HF_ENDPOINT and HF_TOKEN.
"""

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from airgen.components.registry import load_extra
from airgen.errors import DatasetError
from airgen.models import retry_silent_hub
from airgen.net.retrying import retrying
from airgen.safety.mask_secrets import error_words
from airgen.storage.whole_files import git_blob_id

_T = TypeVar("_T")
_ATTEMPTS = 5
_FIRST_ATTEMPTS = 2  # attempts before the Hub has answered for the first time, since it may be unreachable
_LONGEST_PAUSE_SECONDS = 300.0
_MOST_FILES = 100_000  # files of a repository, because a listing can be endless
_MOST_CARD_BYTES = 16 << 20  # maximum bytes of a card
_TEMPORARY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
_ADVICE = {
    401: "the token is missing, wrong or expired: set HF_TOKEN to a token that may write there",
    403: "the token may not write there: use a token with write access to that organisation",
    404: "the repository does not exist, or the token has no access to it",
    409: "someone else is changing the repository: publish again",
    412: "someone else changed the repository in the meantime: publish again",
    413: "a file is larger than the Hub allows",
    429: "too many requests: wait some minutes and publish again; what arrived stays there",
}


class HubChanged(DatasetError):
    """Someone else changed the repository between reading and committing."""


class Hub:
    """Dataset repositories on the Hub. `sleep` waits between attempts, in seconds, and `say` is called with a line
    before each wait."""

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._library = load_extra("huggingface_hub", "publishing")
        retry_silent_hub()
        errors = load_extra("huggingface_hub.errors", "publishing")
        self._http_error, self._offline = errors.HfHubHTTPError, errors.OfflineModeIsEnabled
        if not sys.stderr.isatty():  # bars are drawn in threads, which hang if their output is not read
            load_extra("huggingface_hub.utils", "publishing").disable_progress_bars()
        self._api = self._library.HfApi(endpoint=endpoint, token=token, library_name="airgen")
        self._sleep, self._say, self._answered = sleep, say, False
        self.endpoint: str = self._api.endpoint

    def exists(self, repo: str, *, private: bool) -> bool:
        """Return whether the repository exists. Raises DatasetError if it must be private but is not."""
        try:
            info = self._info(repo)
        except DatasetError as error:
            if error.__cause__ is not None and _status(error.__cause__) == 404:
                return False
            raise
        if private and info.private is not True:  # an unknown answer counts as public
            raise DatasetError(
                f"{repo} exists and is public, but private labels must not go there: make it private first"
            )
        return True

    def ensure(self, repo: str, *, private: bool) -> None:
        """Create the repository unless it exists. Raises DatasetError if it must be private but is not."""
        self._call(repo, lambda: self._api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True))
        self.exists(repo, private=private)

    def read(self, repo: str, name: str, revision: str) -> str:
        """Return the text of a file at a commit."""

        def download() -> str:
            with tempfile.TemporaryDirectory(prefix="airgen-hub-") as folder:
                path = self._api.hf_hub_download(
                    repo, name, repo_type="dataset", revision=revision, cache_dir=folder, local_files_only=False
                )
                if (size := Path(path).stat().st_size) > _MOST_CARD_BYTES:
                    raise DatasetError(
                        f"{repo}: {name} has {size:,} bytes, too large for a dataset card: replace it on the Hub"
                    )
                return Path(path).read_text(encoding="utf-8", errors="replace")

        return self._call(repo, download)

    def head(self, repo: str) -> str:
        """Return the head commit of `main`."""
        return str(self._info(repo).sha)

    def tags(self, repo: str) -> dict[str, str]:
        """Return the commits of the tags by name."""

        def read() -> dict[str, str]:
            refs = self._api.list_repo_refs(repo, repo_type="dataset")
            return _texts({tag.name: tag.target_commit for tag in refs.tags})

        return self._call(repo, read)

    def files(self, repo: str, revision: str) -> dict[str, str]:
        """Return {path: hash}, the SHA-256 for large files and git's blob id for others."""

        def read() -> dict[str, str]:
            tree = self._api.list_repo_tree(repo, repo_type="dataset", revision=revision, recursive=True)
            rows = list(islice(tree, _MOST_FILES + 1))
            if len(rows) > _MOST_FILES:
                raise DatasetError(f"{repo} has more than {_MOST_FILES:,} files: publish to another repository")
            files = [item for item in rows if hasattr(item, "blob_id")]
            return _texts({item.path: item.lfs.sha256 if item.lfs else item.blob_id for item in files})

        return self._call(repo, read)

    def same(self, path: Path, sha256: str, remote: str | None) -> bool:
        """Return whether a local file with known SHA-256 has the hash that `files` returned."""
        if remote is None:
            return False
        return remote == sha256 if len(remote) == 64 else remote == git_blob_id(path)

    def commit(self, repo: str, add: Mapping[str, Path], delete: Sequence[str], message: str, parent: str) -> None:
        """Make one commit on top of `parent`. Raises HubChanged if `parent` is no longer the head.

        This is not retried. After a dropped connection, it is unknown whether the commit was made, so the caller must
        look at the repository first.
        """
        new, gone = self._library.CommitOperationAdd, self._library.CommitOperationDelete
        operations = [new(path_in_repo=name, path_or_fileobj=str(path)) for name, path in add.items()]
        operations += [gone(path_in_repo=name) for name in delete]
        named = {"commit_message": message, "repo_type": "dataset", "parent_commit": parent}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the Hub's warnings about the card's metadata
            self._call(repo, lambda: self._api.create_commit(repo, operations, **named), attempts=1)

    def tag(self, repo: str, name: str, revision: str) -> None:
        """Tag a commit. An existing tag is not changed."""
        named = {"tag": name, "revision": revision, "repo_type": "dataset", "exist_ok": True}
        self._call(repo, lambda: self._api.create_tag(repo, **named))

    def again(
        self, work: Callable[[], _T], tries: int, passes: Callable[[BaseException], bool], say: Callable[[Any], object]
    ) -> _T:
        """Retry work that makes several requests until it succeeds, with a pause after each temporary error."""
        return retrying(work, tries, passes, say=lambda error, pause: say(error), sleep=self._sleep)

    def _info(self, repo: str) -> Any:
        return self._call(repo, lambda: self._api.repo_info(repo, repo_type="dataset"))

    def _call(self, repo: str, action: Callable[[], _T], attempts: int = _ATTEMPTS) -> _T:
        """Run a request. Temporary failures are retried after growing pauses, and others become DatasetError."""

        def enough(number: int, error: BaseException) -> bool:
            self._answered = self._answered or _status(error) is not None
            return number >= (attempts if self._answered else min(attempts, _FIRST_ATTEMPTS))

        def announce(error: BaseException, pause: float) -> None:
            problem = f"HTTP {status}" if (status := _status(error)) else "no connection"
            self._say(f"{repo}: {problem} from {self.endpoint}, trying again in {pause:.0f} s")

        try:
            result = retrying(
                action, enough, self.is_temporary, requested_wait=_asked_pause, say=announce, sleep=self._sleep
            )
            self._answered = True
            return result
        except (self._http_error, *_transport_errors()) as error:
            raise self._explained(repo, error) from error
        except ValueError as error:  # raised by the library for a wrong name or for wrong metadata
            raise DatasetError(f"{repo}: huggingface_hub failed: {error_words(error)}") from error
        except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise DatasetError(
                f"{repo}: {self.endpoint} returned an answer of another form than the Hub's: is HF_ENDPOINT a Hub?"
            ) from error

    def is_temporary(self, error: BaseException) -> bool:
        """Return whether a failed request may succeed later. A commit that failed this way may nevertheless have been
        made."""
        if isinstance(error, self._offline):
            return False
        status = _status(error)
        return status in _TEMPORARY_STATUSES if status else isinstance(error, _transport_errors())

    def _explained(self, repo: str, error: BaseException) -> DatasetError:
        status = _status(error)
        if isinstance(error, self._offline):
            return DatasetError(f"{repo}: HF_HUB_OFFLINE is set: unset it to publish")
        if status is None and not self._answered:
            return DatasetError(
                f"{repo}: no connection to {self.endpoint} ({error_words(error)}): check the network, the proxy and "
                "HF_ENDPOINT; nothing was sent"
            )
        if status is None:
            return DatasetError(f"{repo}: the connection to {self.endpoint} broke: publish again to continue")
        advice = _ADVICE.get(status, f"the Hub answered: {error_words(error)}")
        kind = HubChanged if status in (409, 412) else DatasetError
        return kind(f"{repo}: HTTP {status} from {self.endpoint}: {advice}")


def _texts(mapping: dict[Any, Any]) -> dict[str, str]:
    """Return the mapping unchanged. Raises TypeError if it contains anything but strings, which the library does not
    check."""
    if not all(isinstance(value, str) for pair in mapping.items() for value in pair):
        raise TypeError("not a string")
    return mapping


def _status(error: BaseException | None) -> int | None:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    return status if isinstance(status, int) else None


def _asked_pause(error: BaseException | None) -> float:
    """Return the seconds that the Hub asks to wait (Retry-After), at most five minutes."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    text = str(headers.get("Retry-After", ""))
    return min(float(text), _LONGEST_PAUSE_SECONDS) if text.isdigit() else 0.0


def _transport_errors() -> tuple[type[Exception], ...]:
    """Return the connection errors of the HTTP library that this version of huggingface_hub uses."""
    errors = [sys.modules[name].TransportError for name in ("httpx2", "httpx") if name in sys.modules]
    return (*errors, ConnectionError, TimeoutError)
