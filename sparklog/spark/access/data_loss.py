"""Data loss: if records of a read are gone, fail, or report it and go on."""

from __future__ import annotations

import logging
from itertools import count

from sparklog.core.errors import OffsetOutOfRange

logger = logging.getLogger(__name__)

_losses = count(1)
"""Numbers what this process has reported and gone on after."""


def report_data_loss(reason: str, *, fail: bool) -> None:
    """Raise, or log a warning.

    Raises:
        OffsetOutOfRange: if `fail` (option `failOnDataLoss`).
    """
    if fail:
        raise OffsetOutOfRange(
            "Some data may have been lost because they are not available in the log any more; "
            "either the data was aged out or deleted, or the topic may have been deleted before "
            "all the data in the topic was processed. If you don't want your query to fail on such "
            f"cases, set the source option failOnDataLoss to false. Reason: {reason}"
        )
    logger.warning(
        "some data may have been lost because they are not available in the log any more; set the "
        "source option failOnDataLoss to true to fail on such cases. losses_so_far=%d reason=%s",
        next(_losses),
        reason,
    )
