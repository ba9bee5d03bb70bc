"""SUITE.yaml: many datasets under one name and version, each defined by a pipeline file or by a few lines in the suite.

    name: notes
    version: "26.11"
    pipelines: [reference.yaml, {path: book.yaml, split: dev}]
    common: {llm: {backend: openai, model: gpt-4o-mini}, task: qa, language: en}       # what the following ones share
    datasets:
      wiki-bn: {domain: wiki, language: bn, corpus: hub-wikipedia-bn, target: 1820}

The dataset above is the pipeline `notes-wiki-bn`; commands accept `notes.yaml#wiki-bn` in place of a pipeline file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from airgen.components.registry import closest
from airgen.errors import SettingProblem, SettingsError
from airgen.settings.base import Language, Settings, find_yaml, load_yaml, merged, read_mapping

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?"
_KEY = r"^[a-z0-9][a-z0-9._-]{0,62}$"
Figures = tuple[int, int, int, int]


class Member(Settings):
    """A pipeline of a suite.

    Attributes:
        split: Overrides the suite's setting.
        max_passages: Overrides the suite's setting.
    """

    path: Path
    split: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]*$")
    max_passages: int | None = Field(default=None, ge=1)


class PublishedSizes(Settings):
    """Published sizes of a dataset to be rebuilt, from which `airgen check` estimates costs if the corpus is not on
    this machine.

    Attributes:
        dev: Number of queries, their mean length in tokens, and the numbers of positives and hard negatives.
        test: Number of queries, their mean length in tokens, and the numbers of positives and hard negatives.
    """

    passages: int = Field(ge=1)  # including generated passages
    tokens: int = Field(ge=1)  # the mean per passage
    dev: Figures | None = None
    test: Figures | None = None

    @property
    def queries(self) -> int:
        """Return the number of queries in all splits."""
        return sum(split[0] for split in (self.dev, self.test) if split)


class SuiteDataset(Settings):
    """A dataset of a suite without its own file. Its values override those in the suite's `common`."""

    task: str | None = None
    domain: str | None = None
    language: Language | None = None
    corpus: str | None = None
    target: int | None = Field(default=None, ge=1)  # by default, the number of published queries
    pipeline: dict[str, Any] = Field(default_factory=dict)  # further pipeline settings
    split: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]*$")
    max_passages: int | None = Field(default=None, ge=1)
    published: PublishedSizes | None = None


class Suite(Settings):
    """The settings in SUITE.yaml.

    Attributes:
        pipelines: Pipelines in their own files.
        datasets: Datasets without a file: {NAME: settings that differ from `common`}.
    """

    name: str = Field(pattern=f"^{NAME}$")
    version: str = Field(pattern=r"^\d{1,4}(\.\d{1,4}){0,3}$")
    description: str = ""
    max_passages: int | None = Field(default=None, ge=1)  # larger corpora are trimmed to this number
    budget_usd: float | None = Field(default=None, ge=0)  # for all pipelines together
    common: dict[str, Any] = Field(default_factory=dict)  # pipeline settings that all `datasets` share
    datasets: dict[Annotated[str, Field(pattern=_KEY)], SuiteDataset] = Field(default_factory=dict)
    pipelines: list[Member] = Field(default_factory=list, validate_default=True)

    @field_validator("pipelines", mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        """Convert a bare path to a member without options."""
        return (
            [{"path": item} if isinstance(item, str) else item for item in value] if isinstance(value, list) else value
        )

    @field_validator("pipelines")
    @classmethod
    def _some(cls, value: list[Member], info: ValidationInfo) -> list[Member]:
        if not value and not info.data.get("datasets"):
            raise ValueError("is missing, and so is datasets")
        return value

    def values(self, key: str) -> dict[str, Any]:
        """Return the settings of a dataset's pipeline. Raises KeyError."""
        dataset = self.datasets[key]
        own = dataset.model_dump(include={"task", "domain", "language", "corpus", "target"}, exclude_none=True)
        published = {"target": dataset.published.queries} if dataset.published and dataset.published.queries else {}
        values = merged(merged({**published, **self.common}, dataset.pipeline), own)
        if dataset.split is not None and dataset.split != "test":
            values = merged({"export": {"splits": {dataset.split: 1}}}, values)
        return {**values, "name": f"{self.name}-{key}".lower()}


def is_suite(path: Path) -> bool:
    """Return whether a YAML file is a suite, not a pipeline."""
    try:
        return holds_suite(read_mapping(path)[0])
    except SettingsError:
        return False


def holds_suite(values: Mapping[str, Any]) -> bool:
    """Return whether the values of a YAML file are those of a suite."""
    return "version" in values and ("pipelines" in values or "datasets" in values)


def load_suite(path: Path) -> Suite:
    """Read SUITE.yaml. Its datasets become members after those in files. Raises SettingsError with every problem.

    Paths of pipelines are relative to the suite.
    """
    suite = load_yaml(path, Suite)
    places = [find_yaml("pipelines", member.path, path.parent) for member in suite.pipelines]
    resolved = [str(place.resolve()) for place in places]
    if twice := [place for number, place in enumerate(resolved) if place in resolved[:number]]:
        raise SettingsError(
            [f"{path}: pipelines: {Path(twice[0]).name} is listed twice: list every pipeline only once"]
        )
    members = [member.model_copy(update={"path": place}) for member, place in zip(suite.pipelines, places, strict=True)]
    members += [
        Member(path=in_suite(path, key), split=dataset.split, max_passages=dataset.max_passages)
        for key, dataset in suite.datasets.items()
    ]
    return suite.model_copy(update={"pipelines": members})


def in_suite(path: Path, key: str) -> Path:
    """Return the path of a suite's dataset: SUITE.yaml#KEY."""
    return Path(f"{path}#{key}")


def published_sizes(path: Path) -> PublishedSizes | None:
    """Return the published sizes of the dataset SUITE.yaml#KEY, or None for a pipeline file or if there are none."""
    file, mark, key = str(path).rpartition("#")
    if not mark or path.is_file():
        return None
    dataset = load_yaml(Path(file), Suite).datasets.get(key)
    return dataset.published if dataset else None


def pipeline_values(path: Path, key: str) -> dict[str, Any]:
    """Return the settings of the pipeline SUITE.yaml#KEY. Raises SettingsError."""
    suite = load_yaml(path, Suite)
    if key not in suite.datasets:
        words = f"no dataset is named {key!r}{closest(key, known := sorted(suite.datasets))}"
        raise SettingsError([SettingProblem(words, code="unknown_name", where=str(path), names=known)])
    return suite.values(key)
