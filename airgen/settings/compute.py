"""Where heavy work runs: in this process, in several processes of this machine, or on a Ray cluster."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from airgen.errors import UsageError
from airgen.settings.base import SPEED, Settings


class ComputeSettings(Settings):
    """Where heavy work runs. The results are the same bytes everywhere.

    local: `workers` processes of this machine; without `workers`, this process alone does everything. ray: `workers`
    tasks at a time on the cluster at `address` (without `workers`: as many as it has room for), each with
    `gpus_per_worker` and `cpus_per_worker`. Processes share the cores where `cpus_per_worker` is not given.
    """

    kind: Annotated[Literal["local", "ray"], SPEED] = "local"
    address: Annotated[str, SPEED] = "auto"  # of a Ray cluster: auto (this machine belongs to it), or ray://HOST:10001
    workers: Annotated[int | None, SPEED] = Field(default=None, ge=1, le=10_000)
    gpus_per_worker: Annotated[float, SPEED] = Field(default=0.0, ge=0, le=64)
    cpus_per_worker: Annotated[int | None, SPEED] = Field(default=None, ge=1, le=1024)

    @model_validator(mode="after")
    def _only_ray_has_an_address(self) -> "ComputeSettings":
        if self.kind == "local":
            for name in ("address", "gpus_per_worker"):
                if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name}: only kind ray has it: write kind: ray, or remove it")
        return self


_WORDS = re.compile(r"(local|ray)(?::([0-9]{1,5}))?")


def compute_settings(words: str, given: ComputeSettings | None = None) -> ComputeSettings:
    """The settings that `--compute` names: `local`, `local:8`, `ray`, `ray:8`, `ray://HOST:10001`.

    What `given`, a pipeline's own settings, says of the same kind besides is kept; `local` alone is always this
    process. Raises UsageError.
    """
    kept: dict[str, Any] = given.model_dump(exclude_unset=True) if given else {}
    if words.startswith("ray://"):
        change: dict[str, Any] = {"kind": "ray", "address": words}
    elif (found := _WORDS.fullmatch(words)) is not None:
        change = {"kind": found[1]}
        if found[2] is not None:
            if not 1 <= int(found[2]) <= 10_000:
                raise UsageError(f"--compute {words}: the number of workers must be from 1 to 10000")
            change["workers"] = int(found[2])
        elif found[1] == "local":
            change["workers"] = None  # this process, whatever the pipeline says
    else:
        raise UsageError(f"--compute {words[:100]}: must be local, local:WORKERS, ray, ray:WORKERS or ray://HOST:10001")
    same = given is not None and given.kind == change["kind"]
    return ComputeSettings.model_validate({**(kept if same else {}), **change})
