"""Where do a pipeline's records come from when there are no sensors?

Takes a generator (a Python file with `records(site, seed, start) -> Iterator[(topic, key, value)]`, such as
examples/readings/records.py) and writes what it gives into the brokers of the sites, at an even pace. The same
seed gives the same records, so `sent_records` can say afterwards what was fed.

    HW1701   there is no such generator
    HW1702   the file cannot be loaded, or has no `records`
    HW1703   the generator failed, or gave something that is no record
    HW1704   the generator does not have what was asked for: a setting, closing records
    HW1705   no site, or a rate, time or number that makes no sense
    HW4401   a broker does not answer
    HW4402   a broker did not take records
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeGuard

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.bind.topics import client_settings, reason
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.report import listed, quote
from headwater.model.units import show
from headwater.serve.fed import ready_plane
from headwater.serve.output import Output
from headwater.serve.progress import Teller, note
from headwater.serve.render import simple_table
from headwater.serve.testbed import go_where_it_is

__all__ = ["Record", "feed", "running_brokers", "sent_records"]

Record = tuple[str, bytes | None, bytes]  # topic, key, value

FILE = "records.py"  # in a folder that is given instead of a file
ANSWER_S = 10.0  # a broker answers within this
BEHIND_S = 1.0  # from here on it is said that the pace is not held
READY_PAUSE_S = 0.2  # between two looks for a run
SLICE_S = 0.02  # longest sleep, so that deliveries are noticed
CLOSING_PAUSE_S = 5.0  # between rounds of closing records: what a round sets free needs time to arrive everywhere
WAITING_KB = 262_144  # of records that a broker has not taken; more wait in the generator
DONE, INTERRUPTED = 0, 130  # exit codes


@dataclass(frozen=True, slots=True)
class _Generator:
    """A loaded generator."""

    file: str  # as the user named it
    module: ModuleType
    settings: Mapping[str, str]

    def records(self, site: str, seed: int, start: int) -> Iterator[Record]:
        """Give the records of a site."""
        return self._checked(site, lambda: self.module.records(site, seed, start, **self.settings))

    def closing(self, site: str, seed: int) -> Iterator[Record]:
        """Give the records that end everything for a site."""
        return self._checked(site, lambda: self.module.closing(site, seed))

    def _checked(self, site: str, made: Callable[[], Iterator[object]]) -> Iterator[Record]:
        try:
            for number, record in enumerate(made()):
                if not _is_record(record):
                    text = f"record {number} of site '{site}' is {quote(repr(record), 80)}"
                    raise _wrong(
                        "HW1703", f"{text}; a record is (topic, key or None, value), the last two bytes", self.file
                    )
                yield record
        except SpecError:
            raise
        except Exception as error:
            text = f"the generator failed for site '{site}': {type(error).__name__}: {error}"
            raise _wrong("HW1703", text, self.file, _line_in(error, self.file)) from error


@dataclass
class _Feed:
    """One site that is being fed."""

    site: str
    broker: str
    producer: Producer
    records: Iterator[Record]
    sent: int = 0
    closing: int = 0  # records that end everything, on top of those sent
    size_bytes: int = 0  # of keys and values
    is_over: bool = False  # whether the generator has no more
    refused: list[str] = field(default_factory=list)  # why the broker did not take a record

    def send(self, record: Record) -> None:
        """Hand a record to the client; wait while too many are on their way."""
        topic, key, value = record
        while True:
            try:
                self.producer.produce(topic, value, key, on_delivery=self._delivered)
                break
            except BufferError:
                self.producer.poll(SLICE_S)
                self.check()
            except KafkaException as error:
                raise self._not_taken(reason(error)) from error
        self.size_bytes += len(key or b"") + len(value)

    def check(self) -> None:
        """Notice deliveries, and raise if a record was refused."""
        self.producer.poll(0)
        if self.refused:
            raise self._not_taken(self.refused[0])

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self.refused.append(error.str())

    def _not_taken(self, why: str) -> BindError:
        return BindError(f"HW4402 the broker {self.broker} of site '{self.site}' did not take a record: {why}")


def feed(
    generator: str,
    brokers: Mapping[str, str],
    rate_rps: float,
    seconds: float | None,
    count: int | None,
    seed: int,
    should_close: bool,
    output: Output,
    settings: Mapping[str, str] | None = None,
    start: int = 0,
    closing_pause_s: float = CLOSING_PAUSE_S,
) -> int:
    """Write a generator's records into the brokers of the sites; return the exit code.

    Ends after `seconds` or after `count` records for each site, whichever comes first, or at Ctrl-C; a feed
    without an end that Ctrl-C ends is done.

    Args:
        generator: a Python file, or a folder with a records.py.
        brokers: the address of each site's broker.
        rate_rps: records a second, for each site.
        seconds: how long; None: no end.
        count: how many for each site; None: no end.
        seed: what the generator's chance comes from.
        should_close: whether to send the generator's closing records at the end.
        output: where the answer goes.
        settings: more arguments of the generator's `records`, by name.
        start: number of the first record: where an earlier feed with this seed ended.
        closing_pause_s: between one round of closing records and the next.

    Raises:
        SpecError: HW1701 to HW1705.
        BindError: HW4401 and HW4402.
    """
    _check(brokers, rate_rps, seconds, count, start)
    loaded = _load(generator, settings or {}, should_close)
    feeds = [
        _Feed(site, broker, _producer(broker), loaded.records(site, seed, start)) for site, broker in brokers.items()
    ]
    _wait_for_answers(feeds)
    wanted = _wanted(rate_rps, seconds, count)
    with Teller(f"feeding {listed(list(brokers))}") as teller:
        begun_s = time.monotonic()
        behind_s, is_interrupted = _pace(feeds, rate_rps, wanted, math.inf if seconds is None else seconds, teller)
        took_s = time.monotonic() - begun_s
        _settle(feeds, teller)
        if should_close and (wanted is None or not is_interrupted):
            _close(feeds, loaded, seed, closing_pause_s, teller)
    answer = {
        "generator": loaded.file,
        "seed": seed,
        "start": start,
        "asked_rps": rate_rps,
        "seconds": took_s,
        "behind_s": behind_s,
        "interrupted": is_interrupted,
        "sites": {
            each.site: {
                "broker": each.broker,
                "records": each.sent,
                "closing": each.closing,
                "size_bytes": each.size_bytes,
                "rate_rps": _rate(each.sent, took_s, rate_rps),
            }
            for each in feeds
        },
    }
    output.answer(answer, _shown(feeds, took_s, rate_rps))
    return INTERRUPTED if is_interrupted and wanted is not None else DONE


def running_brokers(
    state: str | None, named: Mapping[str, str], sites: Sequence[str], wait_s: float = 0.0
) -> dict[str, str]:
    """Return which brokers to feed, by site.

    Args:
        state: the state folder of a run that is going on, or of a control plane; None: only those named are known.
        named: addresses by site, on top of those of the run.
        sites: feed only these; none: those named, or else those where the run's sources stand.
        wait_s: how long to wait for the run to be ready.

    Raises:
        SpecError: HW1705, nothing runs there, or a site is unknown.
    """
    known, sources = dict(named), list(named)
    if state is not None:
        ready = _ready(state, wait_s)
        if ready is None:
            text = "nothing is ready with this state folder; start 'headwater run' or 'headwater up' with it and wait"
            raise _wrong("HW1705", text, state)
        if "testbed" in ready:
            go_where_it_is(ready["testbed"])
        known = {**ready["brokers"], **named}
        sources = sources or sorted({one["site"] for one in ready["fragments"] if one["has_source"]})
    unknown = [site for site in sites if site not in known]
    if unknown:
        raise _wrong("HW1705", f"site '{unknown[0]}' has no broker here; there are {listed(sorted(known))}", "--site")
    return {site: known[site] for site in (sites or sources)}


def sent_records(
    generator: str,
    site: str,
    seed: int,
    count: int,
    should_close: bool = False,
    settings: Mapping[str, str] | None = None,
    start: int = 0,
) -> list[Record]:
    """Return what a feed of this many records sends to a site, in order.

    Raises:
        SpecError: HW1701 to HW1704.
    """
    loaded = _load(generator, settings or {}, should_close)
    records = list(itertools.islice(loaded.records(site, seed, start), count))
    return records + list(loaded.closing(site, seed)) if should_close else records


def _ready(state: str, wait_s: float) -> Any:
    """Return what a run or a control plane says of itself once it is ready, or None if it is not in time."""
    end_s = time.monotonic() + wait_s
    with Teller("waiting for the run"):
        while True:
            with contextlib.suppress(OSError, ValueError), open(os.path.join(state, "ready.json"), "rb") as opened:
                return json.load(opened)
            with contextlib.suppress(OSError, ValueError):
                return ready_plane(state)
            if time.monotonic() >= end_s:
                return None
            time.sleep(READY_PAUSE_S)


def _check(brokers: Mapping[str, str], rate_rps: float, seconds: float | None, count: int | None, start: int) -> None:
    wrong = []
    if not brokers:
        wrong.append("there is no site to feed; name a broker for at least one")
    if not 0 < rate_rps < math.inf:
        wrong.append(f"the rate is {rate_rps:g}/s; a feed needs more than 0")
    if seconds is not None and not seconds >= 0:
        wrong.append(f"the time is {seconds:g} s; it must not be negative")
    if count is not None and count < 0:
        wrong.append(f"the number of records is {count}; it must not be negative")
    if start < 0:
        wrong.append(f"the first record is number {start}; it must not be negative")
    if wrong:
        raise SpecError(*(Mistake("HW1705", text) for text in wrong))


def _wanted(rate_rps: float, seconds: float | None, count: int | None) -> int | None:
    """Return how many records each site is to get; None: no end."""
    limits = [limit for limit in (count, None if seconds is None else round(rate_rps * seconds)) if limit is not None]
    return min(limits, default=None)


def _load(path: str, settings: Mapping[str, str], should_close: bool) -> _Generator:
    file = os.path.join(path, FILE) if os.path.isdir(path) else path
    if not os.path.isfile(file):
        what = f"this folder has no {FILE}" if file != path else "there is no such file"
        raise _wrong("HW1701", f"{what}; a generator is a Python file, or a folder with a {FILE}", path)
    module = _module(file)
    if not callable(getattr(module, "records", None)):
        raise _wrong("HW1702", "this file has no function 'records(site, seed, start)'; a generator needs one", file)
    if should_close and not callable(getattr(module, "closing", None)):
        raise _wrong("HW1704", "this generator has no function 'closing(site, seed)'; feed it without --close", file)
    known = list(inspect.signature(module.records).parameters)[3:]
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        has = f"it has {listed(known)}" if known else "it has none"
        raise _wrong("HW1704", f"this generator has no setting {listed(unknown)}; {has}", file)
    return _Generator(file, module, settings)


def _module(file: str) -> ModuleType:
    found = importlib.util.spec_from_file_location("headwater_generator", file)
    if found is None or found.loader is None:
        raise _wrong("HW1702", "this is no Python file; a generator's name ends in .py", file)
    module = importlib.util.module_from_spec(found)
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the project's folder stays as it is
    try:
        found.loader.exec_module(module)
    except Exception as error:
        line = getattr(error, "lineno", None)
        raise _wrong("HW1702", f"loading this file failed: {type(error).__name__}: {error}", file, line) from error
    finally:
        sys.dont_write_bytecode = writes_none
    return module


def _producer(broker: str) -> Producer:
    # order is kept and nothing doubled or lost while the broker is away for a while
    return Producer(
        client_settings(broker)
        | {
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.max.bytes": 100_000_000,  # the broker decides
            "queue.buffering.max.kbytes": WAITING_KB,
        }
    )


def _wait_for_answers(feeds: list[_Feed]) -> None:
    """Refuse before the first record is sent; the time is for all of them together."""
    end_s = time.monotonic() + ANSWER_S
    for each in feeds:
        try:
            each.producer.list_topics(timeout=max(0.5, end_s - time.monotonic()))
        except KafkaException as error:
            raise BindError(
                f"HW4401 the broker {each.broker} of site '{each.site}' does not answer within {ANSWER_S:g} s; "
                "check the address, and that the site is up"
            ) from error


def _pace(feeds: list[_Feed], rate_rps: float, wanted: int | None, end_s: float, teller: Teller) -> tuple[float, bool]:
    """Send records at an even pace until all are sent, time is up, no site has more or somebody ends it.

    Returns:
        The longest that a record was late, in seconds; whether it was ended.
    """
    begun_s = time.monotonic()
    number, worst_s, is_told = 0, 0.0, False
    try:
        while (wanted is None or number < wanted) and not all(each.is_over for each in feeds):
            now_s = time.monotonic() - begun_s
            if now_s >= end_s:
                break
            behind_s = now_s - number / rate_rps
            if behind_s < 0:
                time.sleep(min(-behind_s, SLICE_S))
            else:
                worst_s = max(worst_s, behind_s)
                if behind_s > BEHIND_S and not is_told:
                    is_told = True
                    asked = show(rate_rps, "rate")
                    note(f"the feed is behind: {number} records a site in {now_s:.1f} s, not {asked}; it goes on")
                _send_one(feeds)
                number += 1
                teller.say(f"{number} records a site, {number / max(now_s, 1e-3):.0f}/s", _share(number, wanted))
            for each in feeds:
                each.check()
    except KeyboardInterrupt:
        return worst_s, True
    if wanted is not None and number < wanted and not all(each.is_over for each in feeds):
        note(f"time was up after {number} of {wanted} records a site: {show(rate_rps, 'rate')} was too fast here")
    return worst_s, False


def _send_one(feeds: list[_Feed]) -> None:
    for each in feeds:
        record = None if each.is_over else next(each.records, None)
        if record is None:
            each.is_over = True
        else:
            each.send(record)
            each.sent += 1


def _settle(feeds: list[_Feed], teller: Teller) -> None:
    """Wait until the brokers have taken everything; the client gives up by itself after some minutes."""
    for each in feeds:
        while waiting := each.producer.flush(0.5):
            teller.say(f"'{each.site}' has {waiting} records to take", None)
        each.check()


def _close(feeds: list[_Feed], loaded: _Generator, seed: int, pause_s: float, teller: Teller) -> None:
    rounds = itertools.zip_longest(*(loaded.closing(each.site, seed) for each in feeds))
    for number, records in enumerate(rounds):
        if number:
            teller.say(f"closing, round {number + 1}: waiting {pause_s:g} s for what the last one set free", None)
            time.sleep(pause_s)
        for each, record in zip(feeds, records, strict=True):
            if record is not None:
                each.send(record)
                each.closing += 1
        _settle(feeds, teller)


def _share(number: int, wanted: int | None) -> float | None:
    return number / wanted if wanted else None


def _rate(sent: int, took_s: float, asked_rps: float) -> float:
    """Return the rate that was held; the last record's share of time counts, or few records would seem too fast."""
    return sent / max(took_s, sent / asked_rps) if sent else 0.0


def _shown(feeds: list[_Feed], took_s: float, asked_rps: float) -> Any:
    rows = [
        (
            each.site,
            each.broker,
            f"{each.sent}" + (f" + {each.closing} closing" if each.closing else ""),
            show(each.size_bytes, "size"),
            f"{show(_rate(each.sent, took_s, asked_rps), 'rate')} of {show(asked_rps, 'rate')}",
        )
        for each in feeds
    ]
    return simple_table(("site", "broker", "records", "size", "rate"), rows)


def _line_in(error: BaseException, file: str) -> int | None:
    """Return the last line of the generator's own that an error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((one.lineno for one in reversed(frames) if os.path.samefile(one.filename, file)), None)


def _is_record(record: object) -> TypeGuard[Record]:
    match record:
        case (str(), None | bytes(), bytes()):
            return True
    return False


def _wrong(code: str, text: str, file: str, line: int | None = None) -> SpecError:
    return SpecError(Mistake(code, f"{text}.", file, line))
