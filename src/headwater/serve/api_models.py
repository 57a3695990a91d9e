"""Which forms do requests and answers of the REST API have?

Requests are checked against these before anything else looks at them. Answers are made in `serve.seen`, as plain
objects; the models here describe them to readers, and a test holds the two together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from headwater.model.quality import LEAST_GOAL_S, MOST_GOAL_S
from headwater.plan.diff import Bucket
from headwater.plan.jobs import State
from headwater.plan.steps import Act

__all__ = [
    "ChangeSeen",
    "Changed",
    "CompositionSeen",
    "CompositionsSeen",
    "Described",
    "Error",
    "FailureSeen",
    "GoalForm",
    "GoalSeen",
    "GoalsSeen",
    "Health",
    "History",
    "HistoryEntry",
    "JobForm",
    "JobSeen",
    "JobsSeen",
    "Log",
    "Mistake",
    "Move",
    "Named",
    "ObservedSeen",
    "OperatorMove",
    "PipelineForm",
    "PipelineSeen",
    "PipelinesSeen",
    "PlanSeen",
    "PolicyForm",
    "PolicySeen",
    "SiteSeen",
    "SitesSeen",
    "Status",
    "StepSeen",
    "TokenForm",
    "TokenMade",
    "TokenRevoked",
    "TokenSeen",
    "TokensSeen",
    "TopicSeen",
    "Trouble",
    "Upload",
    "UploadListed",
    "UploadsSeen",
    "Wanted",
]

MOST_TEXT = 16 * 2**20
Short = Annotated[str, StringConstraints(min_length=1, max_length=400)]
Text = Annotated[str, StringConstraints(max_length=MOST_TEXT)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobForm(_Form):
    """A job: a function from DataFrame to DataFrame between two topics, at a site."""

    job_name: Short = Field(description="unique among all jobs", examples=["A"])
    spe_address: Short = Field(
        description="the site that runs it: its name, or an address with its name as host, or the label that its "
        "agent goes by",
        examples=["http://edge-1:8081/", "edge-1"],
    )
    source_broker: Short = Field(
        description="a site, whose broker is meant, or the address of a broker of yours",
        examples=["tcp://edge-1:1883", "tcp://10.0.0.7:9092"],
    )
    sink_broker: Short = Field(description="likewise, for what it writes", examples=["tcp://cloud:1883"])
    source_topic: Short = Field(description="what it reads; not beginning with 'hw.'", examples=["T-1"])
    sink_topic: Short = Field(description="what it writes; not beginning with 'hw.'", examples=["T-C-filter"])
    entry_class: Short = Field(description="'module:function' in what was uploaded", examples=["jobs:only_hot"])
    job_path: Short = Field(description="an upload's name, or 'sha256:HASH'", examples=["jobs.py"])


class PipelineForm(_Form):
    """A project and where it may run."""

    project: Text = Field(description="the project as JSON text, as 'headwater apply' makes it")
    upload: Short = Field(description="hash of the project's files, which were uploaded", examples=["ab" * 32])
    sites: Text = Field(description="text of a sites file; every site with slots has an agent")
    placement: dict[Short, Short] | None = Field(
        default=None,
        description="site by operator or instance; null: one is searched for",
        examples=[{"hot": "edge-1"}],
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="the same seed gives the same placement")
    method: Short = Field(default="auto", description="how to search", examples=["auto"])


class Move(_Form):
    """Where a job goes."""

    site: Short = Field(examples=["cloud"])
    force: bool = Field(default=False, description="leave a site that does not answer; its copy is given up")


class OperatorMove(Move):
    """Where an operator goes."""

    operator: Short = Field(description="an operator, or one instance of it", examples=["hot", "hot@pi-1"])


class TokenForm(_Form):
    """Whom a token is for."""

    site: Short = Field(description="the site whose agent it lets in", examples=["edge-1"])


class GoalForm(_Form):
    """What a composition or pipeline is held to."""

    quality: Short | None = Field(None, alias="class", description="gold, silver or bronze", examples=["gold"])
    p99_s: float | None = Field(
        None,
        ge=LEAST_GOAL_S,
        le=MOST_GOAL_S,
        strict=True,
        allow_inf_nan=False,
        description="99th percentile of latency; null: that of the class",
    )

    @model_validator(mode="after")
    def _says_something(self) -> GoalForm:
        if self.quality is None and self.p99_s is None:
            raise ValueError("give a class, a p99_s, or both")
        return self


class PolicyForm(_Form):
    """How latency goals are held."""

    policy: Short | None = Field(description="its name; null: each site as its agent was told", examples=["predictive"])


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Mistake(_Answer):
    """One thing that is wrong."""

    code: str = Field(examples=["HW1820"])
    text: str
    file: str | None
    line: int | None


class Error(_Answer):
    """What went wrong."""

    code: str = Field(description="HW1: yours to mend; HW2: no plan for this; HW4: something outside refused")
    text: str
    mistakes: list[Mistake]


class Trouble(_Answer):
    """Any answer that is no success."""

    error: Error


class TopicSeen(_Answer):
    """A topic of a broker."""

    broker: str
    name: str


class ChangeSeen(_Answer):
    """What becomes of a job."""

    bucket: Bucket
    job: str
    site: str
    from_site: str | None
    because: str
    pause_s: float = Field(description="that its records are expected to see")


class StepSeen(_Answer):
    """One act at one site."""

    act: Act
    site: str
    job: str
    because: str
    after: list[int] = Field(description="places in the list of the steps that must be done before")
    topic: TopicSeen | None


class PlanSeen(_Answer):
    """What has to be done."""

    basis: str = Field(description="send it with the change, and it is done as planned or refused")
    changes: list[ChangeSeen]
    steps: list[StepSeen]


class FailureSeen(_Answer):
    """Something that could not be done."""

    job: str
    site: str
    act: str
    text: str


class Changed(_Answer):
    """What comes of a change."""

    plan: PlanSeen
    is_done: bool = Field(description="whether its jobs are as wanted; a plan alone: whether nothing is to be done")
    failures: list[FailureSeen]


class Health(_Answer):
    """That the controller is there."""

    ok: bool
    version: str
    sites: int
    jobs: int


class _JobShort(_Answer):
    name: str
    composition: str
    state: State
    text: str
    site: str
    wanted_site: str | None
    is_run: bool
    is_done: bool
    epoch: int | None
    entry: str
    told: dict[str, Any]


class Described(_Answer):
    """A job."""

    site: str
    composition: str
    sources: list[TopicSeen]
    sink: TopicSeen | None
    code: str
    entry: str
    is_stateful: bool | None
    is_run: bool
    is_fragment: bool


class Wanted(Described):
    """A job as it is wanted."""

    form: JobForm | None = Field(description="what submits it; null for a fragment of a pipeline")


class ObservedSeen(_Answer):
    """A job as its site holds it."""

    site: str
    epoch: int
    is_run: bool
    state: State
    text: str
    job: Described


class JobSeen(_JobShort):
    """A job as wanted and as observed."""

    wanted: Wanted | None = Field(description="null: it is not wanted any more")
    observed: ObservedSeen | None = Field(description="null: no site has it yet")


class JobsSeen(_Answer):
    """All jobs."""

    jobs: list[JobSeen]


class SiteSeen(_Answer):
    """A site."""

    name: str
    is_reached: bool
    seen_s: float | None = Field(description="since it was heard of")
    broker: str | None
    address: str | None
    version: str | None
    jobs: int
    told: dict[str, Any]


class SitesSeen(_Answer):
    """All sites."""

    sites: list[SiteSeen]


class Status(_Answer):
    """How everything is."""

    revision: int
    is_done: bool
    sites: list[SiteSeen]
    jobs: list[_JobShort]
    failures: list[FailureSeen]


class GoalSeen(_Answer):
    """What a composition or pipeline is held to."""

    quality: str | None = Field(alias="class")
    p99_s: float | None


class GoalsSeen(_Answer):
    """All goals that were set."""

    goals: dict[str, GoalSeen]


class PolicySeen(_Answer):
    """How latency goals are held."""

    policy: str | None


class Named(_Answer):
    """A composition or pipeline."""

    name: str
    jobs: int


class CompositionsSeen(_Answer):
    """All compositions."""

    compositions: list[Named]


class CompositionSeen(_Answer):
    """A composition."""

    name: str
    jobs: list[JobSeen]
    yaml: str = Field(description="submits just these jobs")


class PipelinesSeen(_Answer):
    """All pipelines."""

    pipelines: list[Named]


class PipelineSeen(_Answer):
    """A pipeline."""

    name: str
    upload: str
    method: str
    seed: int
    asked: dict[str, str] | None
    placement: dict[str, str]
    sites: str
    jobs: list[JobSeen]


class Upload(_Answer):
    """What was uploaded."""

    name: str
    hash: str
    size_bytes: int
    is_new: bool


class UploadListed(_Answer):
    """What was uploaded."""

    name: str
    hash: str
    size_bytes: int
    at_s: float


class UploadsSeen(_Answer):
    """All uploads."""

    uploads: list[UploadListed]


class HistoryEntry(_Answer):
    """A change of the past."""

    id: int
    at_s: float
    who: str = Field(description="id of the token that asked")
    what: str
    outcome: str | None = Field(description="null: it is under way")


class History(_Answer):
    """What was changed, the last first."""

    history: list[HistoryEntry]


class TokenMade(_Answer):
    """A token, shown this once."""

    id: str
    token: str


class TokenRevoked(_Answer):
    """A token that counts no more."""

    id: str
    is_revoked: Literal[True]


class TokenSeen(_Answer):
    """A token, without what it is."""

    id: str
    kind: Literal["operator", "agent"]
    site: str | None
    created_at_s: float
    revoked_at_s: float | None


class TokensSeen(_Answer):
    """All tokens there ever were."""

    tokens: list[TokenSeen]


class Log(_Answer):
    """The end of a log."""

    text: str
