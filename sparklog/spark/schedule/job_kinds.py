"""The jobs that a schedule may name: how each reads its words, and what it does.

A job is imported when it is asked for: most of those who look at a schedule run nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.spark.jobs.progress import JobProgress

Parse = Callable[[Sequence[str]], Any]
Body = Callable[[Any, Any, JobProgress], Any]

_MODULES: Mapping[str, tuple[str, str]] = {
    "compact": ("sparklog.spark.jobs.compact", "sparklog.spark.jobs.compact"),
    "materialize": ("sparklog.spark.materialize.arguments", "sparklog.spark.materialize.job"),
    "pipeline": ("sparklog.spark.pipeline.scheduled", "sparklog.spark.pipeline.scheduled"),
    "retain": ("sparklog.spark.jobs.retain", "sparklog.spark.jobs.retain"),
    "verify": ("sparklog.spark.jobs.verify", "sparklog.spark.jobs.verify"),
}
KINDS: tuple[str, ...] = tuple(_MODULES)


@dataclass(frozen=True, slots=True)
class JobKind:
    """One of the jobs in `jobs/`."""

    name: str

    def parsed(self, words: Sequence[str]) -> Any:
        """Return the job that the words of a command line describe.

        Raises:
            InvalidRequest: the job refuses them; the message is what its command line would say.
        """
        module = importlib.import_module(_MODULES[self.name][0])
        parse = cast("Parse", getattr(module, f"parse_{self.name}"))
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                return parse(words)
        except SystemExit:
            last = said.getvalue().strip().splitlines()[-1:] or ["it only asks for help"]
            raise InvalidRequest(last[0].partition("error: ")[2] or last[0]) from None
        except InvalidConfig as error:
            raise InvalidRequest(str(error)) from None

    @property
    def body(self) -> Body:
        """Return what the job does with what was parsed, a session and a progress."""
        module = importlib.import_module(_MODULES[self.name][1])
        return cast("Body", getattr(module, self.name))


def kind_of(name: str) -> JobKind:
    """Return a kind of job.

    Raises:
        InvalidRequest: there is none of that name.
    """
    if name not in _MODULES:
        raise InvalidRequest(f"no such kind of job: {name!r}; choose from {', '.join(KINDS)}")
    return JobKind(name)
