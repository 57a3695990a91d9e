"""What may operators ask over HTTP?

One route for each thing that can be asked: it takes the request apart, lets `serve.controller` do it, and answers
with what `serve.seen` makes of it. Routes are plain functions, which run in threads, so that one that waits holds
up nobody; only uploads are read as they come.

    HW2211  a token that would revoke itself
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from headwater import __version__
from headwater.bind.tokens import Tokens
from headwater.errors import PlanError
from headwater.serve import api_models as forms
from headwater.serve import pipelines, seen
from headwater.serve.api_guard import IDENTITY
from headwater.serve.controller import Answer, Call, Controller
from headwater.serve.wanting import check_name, unknown

__all__ = ["Reply", "operators"]

CHUNK_BYTES = 2**20
LONGEST_WAIT_S = 600.0
YAML = """\
jobs:
- job_name: A
  spe_address: http://edge-1:8081/
  source_broker: tcp://edge-1:1883
  sink_broker: tcp://cloud:1883
  source_topic: T-1
  sink_topic: T-C-filter
  entry_class: jobs:only_hot
  job_path: jobs.py
"""
DONE_OR_NOT: dict[int | str, dict[str, Any]] = {
    200: {"model": forms.Changed, "description": "as wanted already; or the plan, with dry_run"},
    202: {"model": forms.Changed, "description": "written down, and under way"},
}

Responses = dict[int | str, dict[str, Any]]
Name = Annotated[str, Path(max_length=300, description="its name", examples=["city"])]
DryRun = Annotated[bool, Query(description="only what would be; nothing changes")]


class Reply(JSONResponse):
    """JSON in ASCII: whatever text is in it can be sent."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, separators=(",", ":")).encode()


def _call(
    request: Request,
    dry_run: Annotated[bool, Query(description="only the plan; nothing changes")] = False,
    basis: Annotated[str | None, Query(max_length=100, description="of the plan that this is to be")] = None,
    wait_s: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT_S, allow_inf_nan=False, description="wait for the jobs to be as wanted")
    ] = 0.0,
    force: Annotated[bool, Query(description="jobs may leave sites that do not answer")] = False,
) -> Call:
    return Call(_who(request), dry_run, basis, wait_s, force)


AsCall = Annotated[Call, Depends(_call)]


def operators(controller: Controller, tokens: Tokens) -> APIRouter:
    """Return the routes for operators."""
    found = APIRouter(default_response_class=Reply)
    found.include_router(_looking(controller), tags=["what there is"])
    found.include_router(_jobs(controller), tags=["jobs"])
    found.include_router(_compositions(controller), tags=["compositions"])
    found.include_router(_pipelines(controller), tags=["pipelines"])
    found.include_router(_goals(controller), tags=["latency goals"])
    found.include_router(_policy(controller), tags=["latency goals"])
    found.include_router(_uploads(controller), tags=["uploads"])
    found.include_router(_tokens(controller, tokens), tags=["tokens"])
    return found


def _looking(controller: Controller) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health", responses=_ok(forms.Health))
    def health() -> Reply:
        """Say that the controller is there."""
        return Reply(seen.health_object(controller, __version__))

    @routes.get("/status", responses=_ok(forms.Status))
    def status() -> Reply:
        """Say how everything is: sites, jobs, and what could not be done."""
        return Reply(seen.status_object(controller))

    @routes.get("/sites", responses=_ok(forms.SitesSeen))
    def sites() -> Reply:
        """List the sites that have, or had, an agent."""
        return Reply(seen.sites_object(controller))

    @routes.get("/plan", responses=_ok(forms.Changed))
    def plan() -> Reply:
        """Say what is left to do for what is wanted; the controller is at it."""
        return Reply(seen.answer_object(controller.left()))

    @routes.get("/history", responses=_ok(forms.History))
    def history(limit: Annotated[int, Query(ge=1, le=5000, description="so many, the last first")] = 50) -> Reply:
        """Tell who changed what, when, and what came of it."""
        return Reply(seen.history_object(controller.store.history(limit)))

    return routes


def _jobs(controller: Controller) -> APIRouter:
    routes = APIRouter(prefix="/jobs")

    @routes.get("", responses=_ok(forms.JobsSeen))
    def jobs() -> Reply:
        """List all jobs, also those of compositions and pipelines, as wanted and as observed."""
        return Reply(seen.jobs_seen(controller))

    @routes.post("", status_code=201, responses={200: DONE_OR_NOT[200], 201: {"model": forms.Changed}})
    def submit(form: forms.JobForm, call: AsCall) -> Reply:
        """Deploy and register a job; one of the same name that was submitted so is replaced."""
        return _changed(controller.submit_job(form.model_dump(), call), call, 201)

    @routes.get("/{name}", responses=_ok(forms.JobSeen))
    def job(name: Name) -> Reply:
        """Tell all of a job."""
        return Reply(seen.job_seen(controller, name))

    @routes.delete("/{name}", responses=DONE_OR_NOT)
    def remove(name: Name, call: AsCall) -> Reply:
        """Remove a job with its checkpoint."""
        return _changed(controller.remove_job(name, call), call)

    @routes.post("/{name}/move", responses=DONE_OR_NOT)
    def move(name: Name, form: forms.Move, call: AsCall) -> Reply:
        """Let another site run a job; its state goes along."""
        return _changed(controller.move_job(name, form.site, _forced(call, form.force)), call)

    @routes.post("/{name}/stop", responses=DONE_OR_NOT)
    def stop(name: Name, call: AsCall) -> Reply:
        """Stop a job; it keeps its place and checkpoint."""
        return _changed(controller.run_job(name, False, call), call)

    @routes.post("/{name}/start", responses=DONE_OR_NOT)
    def start(name: Name, call: AsCall) -> Reply:
        """Let a stopped job go on where it ended."""
        return _changed(controller.run_job(name, True, call), call)

    @routes.get("/{name}/logs", responses=_ok(forms.Log))
    def logs(name: Name, lines: Annotated[int, Query(ge=1, le=10_000, description="from the end")] = 200) -> Reply:
        """Get the end of a job's log from its site."""
        return Reply({"text": controller.logs(name, lines)})

    return routes


def _compositions(controller: Controller) -> APIRouter:
    routes = APIRouter(prefix="/compositions")
    body = {
        "requestBody": {
            "required": True,
            "description": "a list 'jobs' of jobs, in YAML or JSON",
            "content": {"application/yaml": {"schema": {"type": "string"}, "example": YAML}},
        }
    }

    @routes.get("", responses=_ok(forms.CompositionsSeen))
    def compositions() -> Reply:
        """List all compositions."""
        return Reply(seen.compositions_object(controller))

    @routes.put("/{name}", responses=DONE_OR_NOT, openapi_extra=body)
    async def submit(name: Name, request: Request, call: AsCall) -> Reply:
        """Submit a composition; only what differs from what runs is touched."""
        text = await request.body()
        return _changed(await run_in_threadpool(controller.submit_composition, name, text, call), call)

    @routes.get("/{name}", responses=_ok(forms.CompositionSeen))
    def composition(name: Name) -> Reply:
        """Tell all of a composition."""
        return Reply(seen.composition_object(controller, name))

    @routes.delete("/{name}", responses=DONE_OR_NOT)
    def remove(name: Name, call: AsCall) -> Reply:
        """Remove a composition with all its jobs."""
        return _changed(controller.remove_composition(name, call), call)

    @routes.post("/{name}/stop", responses=DONE_OR_NOT)
    def stop(name: Name, call: AsCall) -> Reply:
        """Stop all jobs of a composition."""
        return _changed(controller.run_composition(name, False, call), call)

    @routes.post("/{name}/start", responses=DONE_OR_NOT)
    def start(name: Name, call: AsCall) -> Reply:
        """Start all jobs of a composition."""
        return _changed(controller.run_composition(name, True, call), call)

    return routes


def _pipelines(controller: Controller) -> APIRouter:
    routes = APIRouter(prefix="/pipelines")

    @routes.get("", responses=_ok(forms.PipelinesSeen))
    def pipelines_() -> Reply:
        """List all pipelines."""
        return Reply(seen.pipelines_object(controller))

    @routes.put("/{name}", responses=DONE_OR_NOT)
    def submit(name: Name, form: forms.PipelineForm, call: AsCall) -> Reply:
        """Submit a project; it is placed, cut into jobs and deployed, and only what differs is touched."""
        return _changed(controller.submit_pipeline(name, pipelines.Asked(**form.model_dump()), call), call)

    @routes.get("/{name}", responses=_ok(forms.PipelineSeen))
    def pipeline(name: Name) -> Reply:
        """Tell all of a pipeline."""
        return Reply(seen.pipeline_object(controller, name))

    @routes.delete("/{name}", responses=DONE_OR_NOT)
    def remove(name: Name, call: AsCall) -> Reply:
        """Remove a pipeline with all its jobs."""
        return _changed(controller.remove_pipeline(name, call), call)

    @routes.post("/{name}/move", responses=DONE_OR_NOT)
    def move(name: Name, form: forms.OperatorMove, call: AsCall) -> Reply:
        """Let another site run an operator; the pipeline is cut again."""
        return _changed(controller.move_operators(name, [form.operator], form.site, _forced(call, form.force)), call)

    @routes.post("/{name}/stop", responses=DONE_OR_NOT)
    def stop(name: Name, call: AsCall) -> Reply:
        """Stop all jobs of a pipeline."""
        return _changed(controller.run_pipeline(name, False, call), call)

    @routes.post("/{name}/start", responses=DONE_OR_NOT)
    def start(name: Name, call: AsCall) -> Reply:
        """Start all jobs of a pipeline."""
        return _changed(controller.run_pipeline(name, True, call), call)

    return routes


def _goals(controller: Controller) -> APIRouter:
    routes = APIRouter(prefix="/goals")

    @routes.get("", responses=_ok(forms.GoalsSeen))
    def goals() -> Reply:
        """List the latency goals that were set here; others are as their projects say."""
        return Reply({"goals": dict(controller.store.goals())})

    @routes.put("/{name}", responses=_ok(forms.GoalsSeen))
    def put(name: Name, form: forms.GoalForm, request: Request, dry_run: DryRun = False) -> Reply:
        """Set the latency goal of a composition or pipeline; sites hold it from the next second on."""
        return Reply({"goals": dict(controller.set_goal(name, (form.quality, form.p99_s), _who(request), dry_run))})

    @routes.delete("/{name}", responses=_ok(forms.GoalsSeen))
    def remove(name: Name, request: Request, dry_run: DryRun = False) -> Reply:
        """Let the latency goal be as the project says."""
        return Reply({"goals": dict(controller.set_goal(name, None, _who(request), dry_run))})

    return routes


def _policy(controller: Controller) -> APIRouter:
    routes = APIRouter(prefix="/policy")

    @routes.get("", responses=_ok(forms.PolicySeen))
    def policy() -> Reply:
        """Tell the policy by which sites hold latency goals; null: each as its agent was told."""
        return Reply({"policy": controller.store.policy()})

    @routes.put("", responses=_ok(forms.PolicySeen))
    def put(form: forms.PolicyForm, request: Request, dry_run: DryRun = False) -> Reply:
        """Set the policy by which sites hold latency goals, from the next second on."""
        return Reply({"policy": controller.set_policy(form.policy, _who(request), dry_run)})

    return routes


def _uploads(controller: Controller) -> APIRouter:
    routes = APIRouter(prefix="/uploads")
    body = {
        "requestBody": {
            "required": True,
            "description": "a Python file or a zip, at most 64 MiB",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    }

    @routes.get("", responses=_ok(forms.UploadsSeen))
    def uploads() -> Reply:
        """List what was uploaded, by name."""
        return Reply(seen.uploads_object(controller.store.uploads()))

    @routes.put("/{name}", responses=_ok(forms.Upload), openapi_extra=body)
    async def upload(name: Name, request: Request) -> Reply:
        """Upload a Python file or a zip; it is kept by its hash, and the last of a name counts."""
        check_name("an upload", name)
        with await run_in_threadpool(controller.uploads.begin) as incoming:
            waiting = bytearray()
            async for chunk in request.stream():
                waiting += chunk
                if len(waiting) >= CHUNK_BYTES:
                    await run_in_threadpool(incoming.write, bytes(waiting))
                    waiting.clear()
            await run_in_threadpool(incoming.write, bytes(waiting))
            kept, is_new = await run_in_threadpool(controller.keep_upload, name, incoming)
        return Reply({**seen.upload_object(kept), "is_new": is_new})

    return routes


def _tokens(controller: Controller, tokens: Tokens) -> APIRouter:
    routes = APIRouter(prefix="/tokens")

    @routes.get("", responses=_ok(forms.TokensSeen))
    def listed() -> Reply:
        """List all tokens, without what they are."""
        return Reply(seen.tokens_object(tokens.all()))

    @routes.post("", status_code=201, responses={201: {"model": forms.TokenMade}})
    def make(form: forms.TokenForm, request: Request) -> Reply:
        """Make a token for a site's agent; it is shown this once."""
        check_name("a site", form.site)
        token_id, text = tokens.issue("agent", form.site)
        controller.note_token("made", token_id, _who(request), form.site)
        return Reply({"id": token_id, "token": text}, 201)

    @routes.delete("/{token_id}", responses=_ok(forms.TokenRevoked))
    def revoke(token_id: Annotated[str, Path(max_length=300)], request: Request) -> Reply:
        """Revoke a token: whoever has it is not let in any more, from this moment on."""
        if token_id == _who(request):
            raise PlanError("HW2211 a token cannot revoke itself: nobody could come in to make another. Use another.")
        token = tokens.revoke(token_id)
        if token is None:
            unknown("token that counts with the id", token_id, ())
        controller.note_token("revoked", token_id, _who(request), token.site)
        return Reply({"id": token_id, "is_revoked": True})

    return routes


def _changed(answer: Answer, call: Call, status: int = 202) -> Reply:
    """Return what came of a change, with the code that says whether it is done."""
    is_over = call.is_dry_run or (answer.is_done and status != 201)
    return Reply(seen.answer_object(answer), 200 if is_over else status)


def _forced(call: Call, force: bool) -> Call:
    return replace(call, force=call.force or force)


def _ok(model: type[Any]) -> Responses:
    return {200: {"model": model}}


def _who(request: Request) -> str:
    identity: Mapping[str, str] = request.scope[IDENTITY]
    return identity["token_id"]
