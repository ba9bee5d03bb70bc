"""Where heavy work runs: in this process, in several processes on this machine, or on a Ray cluster."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from airgen.errors import UsageError
from airgen.settings.base import SPEED, Settings

_Address = Annotated[str, Field(pattern=r"^(auto|ray://.+:\d{1,5})$")]


class ComputeSettings(Settings):
    """Where heavy work runs.

    The setting does not affect results, which are byte-identical everywhere.

    Attributes:
        kind: `local` uses processes on this machine, `ray` a Ray cluster.
        workers: Number of processes or tasks. Default: this process only, or as many tasks as fit on the cluster.
        address: Address of the cluster.
        gpus_per_worker: GPUs per task.
        cpus_per_worker: Cores per worker. Default: processes share the cores.
    """

    kind: Annotated[Literal["local", "ray"], SPEED] = "local"
    address: Annotated[_Address, SPEED] = "auto"  # of a Ray cluster: auto (this machine), or ray://HOST:10001
    workers: Annotated[int | None, SPEED] = Field(default=None, ge=1, le=10_000)
    gpus_per_worker: Annotated[float, SPEED] = Field(default=0.0, ge=0, le=64)
    cpus_per_worker: Annotated[int | None, SPEED] = Field(default=None, ge=1, le=1024)

    @model_validator(mode="after")
    def _only_ray_has_an_address(self) -> "ComputeSettings":
        if self.kind == "local":
            for name in ("address", "gpus_per_worker"):
                if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name}: allowed only with kind: ray; set that kind, or remove it")
        return self


_WORDS = re.compile(
    r"(?P<kind>local|ray)(?::(?P<workers>[1-9][0-9]{0,3}|10000)|(?<=ray)(?P<address>://.+:[0-9]{1,5}))?"
)


def compute_settings(words: str, given: ComputeSettings | None = None) -> ComputeSettings:
    """Return the settings that `--compute` names: `local`, `local:8`, `ray`, `ray:8`, `ray://HOST:10001`.

    Other settings in `given`, the pipeline's own settings, are kept if they are for the same kind; `local` alone always
    means this process. Raises UsageError.
    """
    match = _WORDS.fullmatch(words)
    if match is None:
        raise UsageError(f"--compute {words[:100]}: must be local, local:WORKERS, ray, ray:WORKERS or ray://HOST:10001")
    kind, workers, address = match["kind"], match["workers"], match["address"]
    values: dict[str, Any] = given.model_dump(exclude_unset=True) if given and given.kind == kind else {}
    change: dict[str, Any] = {"kind": kind}
    if address:
        change["address"] = words
    if workers or kind == "local":
        change["workers"] = workers and int(workers)  # local alone means this process, whatever the pipeline says
    return ComputeSettings.model_validate({**values, **change})
