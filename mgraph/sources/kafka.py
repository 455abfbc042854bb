"""Kafka topics as sources of batches, by confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mgraph.checks import check_number, check_whole, is_choice
from mgraph.errors import InvalidOption, ReadError
from mgraph.sources.places import Placed

__all__ = ["Kafka", "arrow_edges"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2  #: wait of a poll for messages
ANSWER_SECONDS = 10.0  #: time for the brokers to describe a topic


def arrow_edges(messages: Sequence[bytes]) -> Any:
    """Join messages that are tables in Arrow's IPC stream format."""
    import pyarrow as pa

    return pa.concat_tables([pa.ipc.open_stream(message).read_all() for message in messages])


@dataclass(frozen=True)
class Kafka:
    """Source that reads a topic. Needs confluent-kafka.

    Each partition is a source of its own, ``"topic/0"`` and so on. Its offsets are those of its messages. The graph
    stores them, so nothing is committed to Kafka and no consumer group is joined.

    Parameters
    ----------
    topic : str
    config : mapping
        The configuration of the consumer, as in ``{"bootstrap.servers": "localhost:9092"}``.
    decode : callable
        Makes a batch of a list of messages (bytes), of any type that `DynamicGraph.ingest` takes as a part. By default
        a message is a table of edges in Arrow's IPC stream format, with the columns source, target and optionally
        weight, op and time.
    partitions : sequence of int, optional
        All of the topic by default.
    most : int
        Maximum number of messages per batch.
    idle : float, optional
        Seconds without a message after which the source ends; without it, it does not end.
    on_error : "raise" | "skip"
        The treatment of a message that is null or that `decode` refuses. "raise" raises a `ReadError` that names topic,
        partition and offset. "skip" logs the message, counts it in `skipped`, and goes on.

    Attributes
    ----------
    skipped : int
        The number of skipped messages.

    Raises
    ------
    InvalidOption
        confluent-kafka is not installed, `on_error` is unknown, or a number is out of its range.
    """

    topic: str
    config: Mapping[str, Any]
    decode: Callable[[Sequence[bytes]], Any] = arrow_edges
    partitions: Sequence[int] | None = None
    most: int = 1000
    idle: float | None = None
    on_error: str = "raise"
    skipped: int = field(default=0, init=False, compare=False)
    _library: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise InvalidOption('reading Kafka needs confluent-kafka: pip install "dask-mgraph[kafka]"') from None
        object.__setattr__(self, "_library", confluent_kafka)
        if check_whole(self.most, "most") < 1:
            raise InvalidOption(f"most is {self.most}; at least 1 is needed")
        if not is_choice(self.on_error, ("raise", "skip")):
            raise InvalidOption(f'on_error is {self.on_error!r}; it must be "raise" or "skip"')
        if self.idle is not None and not check_number(self.idle, "idle") >= 0:
            raise InvalidOption(f"idle is {self.idle}; it must be 0 seconds or more")

    def batches(self, after: Mapping[str, int]) -> Iterator[Placed]:
        """Yield the messages after the last offset of each partition, in batches.

        Raises
        ------
        ReadError
            The brokers do not answer, the topic does not exist, messages after the last offset are gone, or a message
            cannot be decoded.
        """
        consumer = self._library.Consumer(
            {"group.id": "mgraph", **self.config, "enable.auto.commit": False, "auto.offset.reset": "error"}
        )
        try:
            consumer.assign([self._place(consumer, number, after) for number in self._numbers(consumer)])
            yield from self._read(consumer)
        except self._library.KafkaException as error:
            raise ReadError(f"topic {self.topic!r}: {error.args[0].str()}") from None
        finally:
            consumer.close()

    def _numbers(self, consumer: Any) -> Sequence[int]:
        """Return the numbers of the partitions to read."""
        if self.partitions is not None:
            return self.partitions
        about = consumer.list_topics(self.topic, ANSWER_SECONDS).topics[self.topic]
        if about.error is not None:
            raise ReadError(f"topic {self.topic!r}: {about.error.str()}")
        return sorted(about.partitions)

    def _place(self, consumer: Any, number: int, after: Mapping[str, int]) -> Any:
        """Return a partition at the offset to read first."""
        # Begin after the last offset, or at the first message of a new source.
        partition = self._library.TopicPartition(self.topic, number)
        low, _ = consumer.get_watermark_offsets(partition, ANSWER_SECONDS)
        partition.offset = after.get(self._name(number), -1) + 1
        if self._name(number) not in after:
            partition.offset = low
        elif partition.offset < low:
            raise ReadError(
                f"topic {self.topic!r}, partition {number}: the graph has messages up to {partition.offset - 1}, and "
                f"the first one that Kafka has is {low}: those in between are gone"
            )
        return partition

    def _name(self, number: int) -> str:
        return f"{self.topic}/{number}"

    def _read(self, consumer: Any) -> Iterator[Placed]:
        """Poll the brokers and yield batches until the topic is idle."""
        heard = time.monotonic()
        while True:
            # Poll, and group the messages by partition.
            messages = consumer.consume(self.most, POLL_SECONDS)
            by_partition: dict[int, list[Any]] = {}
            for message in messages:
                if message.error() is not None:
                    raise self._library.KafkaException(message.error())
                by_partition.setdefault(message.partition(), []).append(message)
            # Yield one batch per partition.
            for number, some in by_partition.items():
                for last, batch in self._decoded(some):
                    yield (self._name(number), last), batch
                heard = time.monotonic()
            if not messages and self.idle is not None and time.monotonic() - heard >= self.idle:
                return

    def _decoded(self, messages: list[Any]) -> Iterator[tuple[int, Any]]:
        """Yield the messages of a partition, usually as one batch."""
        # Decode all messages at once.
        values = [message.value() for message in messages]
        if None not in values:
            batch = None
            with suppress(Exception):  # the loop below finds the message that is wrong
                batch = self.decode(values)
            if batch is not None:
                yield messages[-1].offset(), batch
                return

        # Otherwise decode each message alone to find the bad ones.
        kept = []
        for message in messages:
            try:
                if message.value() is None:
                    raise ValueError("the message is null")
                self.decode([message.value()])
                kept.append(message)
            except Exception as error:
                if self.on_error == "raise":
                    if kept:
                        yield kept[-1].offset(), self.decode([each.value() for each in kept])
                    raise self._refusal(message, error) from error
                object.__setattr__(self, "skipped", self.skipped + 1)
                logger.warning(
                    "%s; it was skipped, as were %d before it", self._refusal(message, error), self.skipped - 1
                )
        if kept:
            yield messages[-1].offset(), self.decode([each.value() for each in kept])

    def _refusal(self, message: Any, error: Exception) -> ReadError:
        place = f"topic {self.topic!r}, partition {message.partition()}, offset {message.offset()}"
        return ReadError(f"{place}: {type(error).__name__}: {error}")
