"""Which instances does a pipeline have when its sources stand on many sites?

A source declared `each` stands once on every site that this names, and what follows it is replicated
likewise, until an operator declared `once` takes all instances in. `expand` takes the pipeline as written
and gives the one that is placed; `spread` turns a user's placement, which may name whole operators, into
one of instances. Without any `each` the pipeline comes back as it is.

- Instances are called `NAME@SITE`. Those of a source are pinned to SITE and each has the source's whole
  rate; those of what follows go wherever the operator's own rules allow.
- An operator that reads replicated streams is paired with them replica by replica; a stream that is not
  replicated is read by every instance. Streams with different replicas meet only in a `once`.
- `with` and `apart` hold between the instances of one replica, and for all instances where one side is not
  replicated: what is `with` a replicated operator stands with every instance of it.
- `objective.between` may name an instance, or an operator that has exactly one: a response time is counted
  from one source to one sink, and which one is the user's to say.

Mistakes: HW1501 replicas that do not match, HW1502 `each` where it has no meaning, HW1503 `each` that no
site answers to, HW1504 a name with '@', HW1505 `with` or `apart` over replicas that do not match, HW1506
`between` that names many instances, HW1507 an unknown name, HW1508 operators that a placement leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from headwater.errors import Mistake, SpecError
from headwater.model.pipeline import Objective, Operator, Pipeline
from headwater.model.report import Report, listed, quote
from headwater.model.sites import Sites
from headwater.model.sites_file import TAG

__all__ = ["Expanded", "Instance", "Replication", "expand", "spread"]

AT = "@"  # joins an operator's name and its replica's

Replicas = tuple[str, ...]  # sites that an operator's instances are named after, in file order; (): not replicated


@dataclass(frozen=True, slots=True)
class Replication:
    """What the user says of one operator's instances."""

    each: str | None = None  # a source: one instance on every site with slots that 'SITE' or 'tag:NAME' names
    once: bool = False  # takes in all instances of what it reads


@dataclass(frozen=True, slots=True)
class Instance:
    """One operator of the expanded pipeline."""

    name: str  # 'hot@pi-1', or the operator's own name
    of: str  # the operator as the user wrote it
    replica: str | None  # the site of the source that it follows; None: not replicated


@dataclass(frozen=True)
class Expanded:
    """A pipeline with every instance an operator of its own."""

    pipeline: Pipeline
    instances: Mapping[str, Instance]  # by name, in the order of the pipeline's operators

    @cached_property
    def by_operator(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the instances of each operator that the user wrote."""
        found: dict[str, list[str]] = {}
        for instance in self.instances.values():
            found.setdefault(instance.of, []).append(instance.name)
        return MappingProxyType({name: tuple(names) for name, names in found.items()})


def expand(pipeline: Pipeline, definitions: Mapping[str, Replication], sites: Sites) -> Expanded:
    """Return the pipeline with every instance an operator of its own.

    Args:
        pipeline: as the user wrote it.
        definitions: by operator; one that is not named is neither `each` nor `once`.
        sites: where `each` looks; their order is the order of the instances.

    Raises:
        SpecError: with every mistake that was found.
    """
    mistakes = _unknown("'each' and 'once' are given for", definitions, pipeline.by_name)
    if all(definition.each is None for definition in definitions.values()):
        if mistakes:
            raise SpecError(*mistakes)
        alone = {name: Instance(name, name, None) for name in pipeline.by_name}
        return Expanded(pipeline, MappingProxyType(alone))
    for name in pipeline.by_name:
        if AT in name:
            text = f"operator {quote(name)} has '{AT}' in its name, which marks instances since a source is 'each'."
            mistakes.append(Mistake("HW1504", f"{text} Rename it."))
    replicas = _replicas(pipeline, definitions, sites, mistakes)
    mistakes += _check_company(pipeline, replicas)
    operators: list[Operator] = []
    instances: dict[str, Instance] = {}
    for operator in pipeline.operators:
        for replica in replicas[operator.name] or (None,):
            name = _name(operator.name, replica)
            instances[name] = Instance(name, operator.name, replica)
            operators.append(
                replace(
                    operator,
                    name=name,
                    inputs=tuple(
                        replace(stream, source=source, target=name)
                        for stream in operator.inputs
                        for source in _partners(stream.source, replica, replicas)
                    ),
                    at=(replica,) if operator.is_source and replica is not None else operator.at,
                    together=_all_partners(operator.together, replica, replicas),
                    apart=_all_partners(operator.apart, replica, replicas),
                )
            )
    objective = _objective(pipeline.objective, replicas, instances, mistakes)
    if mistakes:
        raise SpecError(*mistakes)
    return Expanded(Pipeline(pipeline.name, tuple(operators), objective), MappingProxyType(instances))


def spread(placement: Mapping[str, str], expanded: Expanded) -> dict[str, str]:
    """Return the site of every instance; an operator's name stands for its instances, an instance's name wins.

    Raises:
        SpecError: the placement names what does not exist, or leaves an instance out.
    """
    known = dict.fromkeys((*expanded.by_operator, *expanded.instances))
    mistakes = _unknown("the placement names", placement, known)
    found: dict[str, str] = {}
    missing: list[str] = []
    for name, instance in expanded.instances.items():
        site = placement.get(name, placement.get(instance.of))
        if site is None:
            missing.append(name)
        else:
            found[name] = site
    if missing:
        text = f"the placement says no site for {listed(missing)}. Add a line for each, or for the operator."
        mistakes.append(Mistake("HW1508", text))
    if mistakes:
        raise SpecError(*mistakes)
    return found


def _name(operator: str, replica: str | None) -> str:
    return operator if replica is None else f"{operator}{AT}{replica}"


def _unknown(where: str, names: Collection[str], known: Collection[str]) -> list[Mistake]:
    tips = Report("")  # asked for tips only: these mistakes have no file
    return [
        Mistake("HW1507", f"{where} operator {quote(name)}, which does not exist.{tips.tip(name, known)}")
        for name in names
        if name not in known
    ]


def _replicas(
    pipeline: Pipeline, definitions: Mapping[str, Replication], sites: Sites, mistakes: list[Mistake]
) -> dict[str, Replicas]:
    """Return the replicas of every operator: a source's own, else those of what it reads."""
    found: dict[str, Replicas] = {}
    for name in pipeline.order:
        operator, definition = pipeline.by_name[name], definitions.get(name, Replication())
        if definition.each is not None:
            because = _meaningless(operator, definition)
            if because is not None:
                mistakes.append(Mistake("HW1502", f"operator {quote(name)}: 'each' {because}"))
        if operator.is_source:
            found[name] = () if definition.each is None else _sites(name, definition.each, sites, mistakes)
            continue
        sets: dict[Replicas, str] = {}  # with the first operator that brings each of them
        for stream in operator.inputs:
            if found[stream.source]:
                sets.setdefault(found[stream.source], stream.source)
        if definition.once or not sets:
            found[name] = ()
            continue
        if len(sets) > 1:
            told = ", and ".join(f"{quote(source)} for {listed(some)}" for some, source in sets.items())
            text = (
                f"operator {quote(name)} reads instances that do not match: {told}. Write 'once: true' for "
                f"{quote(name)}, so that it takes all of them in, or give their sources the same 'each'."
            )
            mistakes.append(Mistake("HW1501", text))
        found[name] = next(iter(sets))
    return found


def _meaningless(operator: Operator, definition: Replication) -> str | None:
    if not operator.is_source:
        return "is for sources, and this one reads others; it follows their instances by itself. Remove it."
    if definition.once:
        return "and 'once' exclude each other. Remove one of them."
    if operator.at is not None:
        return "says where it stands, and so does 'at'. Remove one of them."
    return None


def _sites(name: str, each: str, sites: Sites, mistakes: list[Mistake]) -> Replicas:
    """Return the sites with slots that an `each` names, in file order."""
    hosts = [site for site in sites.sites if site.slots > 0]
    is_tag, wanted = each.startswith(TAG), each.removeprefix(TAG)
    found = tuple(site.name for site in hosts if (wanted in site.tags if is_tag else wanted == site.name))
    if found:
        return found
    is_there = any(wanted in site.tags for site in sites.sites) if is_tag else wanted in sites.by_name
    if is_tag:
        known = list(dict.fromkeys(tag for site in hosts for tag in site.tags))
        because = "no site with that tag has slots" if is_there else "no site has that tag"
        exist = f"sites with slots have the tags {listed(known)}" if known else "no site with slots has a tag"
    else:
        known = [site.name for site in hosts]
        because = "that site has no slots" if is_there else "that site does not exist"
        exist = f"sites with slots are {listed(known)}" if known else "no site has slots"
    tip = Report("").tip(wanted, known)
    text = f"source {quote(name)} stands on each {quote(each)}, but {because}; {exist}.{tip}"
    mistakes.append(Mistake("HW1503", text))
    return ()


def _partners(other: str, replica: str | None, replicas: Mapping[str, Replicas]) -> tuple[str, ...]:
    """Return the instances of another operator that one of this replica has to do with."""
    if replica is not None and replicas[other]:
        return (_name(other, replica),)
    return tuple(_name(other, one) for one in replicas[other] or (None,))


def _all_partners(others: Collection[str], replica: str | None, replicas: Mapping[str, Replicas]) -> tuple[str, ...]:
    return tuple(name for other in others for name in _partners(other, replica, replicas))


def _check_company(pipeline: Pipeline, replicas: Mapping[str, Replicas]) -> Iterator[Mistake]:
    """Give the rules between operators whose replicas do not match."""
    for operator in pipeline.operators:
        mine = replicas[operator.name]
        for key, others in (("with", operator.together), ("apart", operator.apart)):
            for other in others:
                if mine and replicas[other] and mine != replicas[other]:
                    yield Mistake(
                        "HW1505",
                        f"operator {quote(operator.name)} names {quote(other)} in '{key}', but their instances do not "
                        f"match: {quote(operator.name)} has those for {listed(mine)}, {quote(other)} those for "
                        f"{listed(replicas[other])}. Remove it there, or give their sources the same 'each'.",
                    )


def _objective(
    objective: Objective,
    replicas: Mapping[str, Replicas],
    instances: Mapping[str, Instance],
    mistakes: list[Mistake],
) -> Objective:
    """Return the objective with the instances that `between` means."""
    if objective.between is None:
        return objective
    mistakes += _unknown("the objective: 'between' names", objective.between, {**replicas, **instances})
    ends: list[str] = []
    for name in objective.between:
        names = _partners(name, None, replicas) if name in replicas else (name,)
        ends.append(names[0])
        if len(names) > 1:
            text = (
                f"the objective: 'between' names {quote(name)}, which has {len(names)} instances: {listed(names)}. "
                "Name one of them, or remove 'between' so that the longest path of all counts."
            )
            mistakes.append(Mistake("HW1506", text))
    return replace(objective, between=(ends[0], ends[1]))
