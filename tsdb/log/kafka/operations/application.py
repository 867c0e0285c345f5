"""PlanRun: applies a plan step by step: throttles, reassignments, elections, and the remains of a crashed run.

The cluster holds all state, so the same plan continues after any stop. A stop by signal, or an error, cancels the step
under way and removes the throttles. After a kill both remain, and the next run takes the step over.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tsdb.log.kafka.operations.admin import ClusterAdmin
from tsdb.log.kafka.operations.plan import Plan
from tsdb.log.kafka.operations.progress import Look, look
from tsdb.log.kafka.operations.refusals import PlanRefused, Refusal, check_plan, cluster_refusals
from tsdb.log.kafka.operations.state import Cluster
from tsdb.log.kafka.operations.steps import Move, Step, step_seconds
from tsdb.log.kafka.operations.throttles import clear_lists, clear_throttles, foreign_throttles, set_throttles
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable

POLL_S = 1.0
# Time without a copied byte and without a finished partition. It is longer than a broker's restart with recovery.
STALL_S = 900.0


class MoveState(enum.Enum):
    """done: replicas and leader are as planned. running: Kafka copies. left: not begun."""

    DONE = "done"
    RUNNING = "running"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class StepState:
    """A step of the plan in the cluster as it is."""

    step: Step
    moves: Sequence[MoveState]

    @property
    def state(self) -> MoveState:
        if all(state is MoveState.DONE for state in self.moves):
            return MoveState.DONE
        return MoveState.LEFT if all(state is MoveState.LEFT for state in self.moves) else MoveState.RUNNING


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A step that is running. number: number of the step, from 1. done: finished moves. left_bytes: bytes that this
    step's copies still need.
    """

    number: int
    steps: int
    done: int
    moves: int
    left_bytes: int
    seconds_left: float | None


class Stopped(Exception):
    """A stop was requested; the step under way is cancelled and the throttles are removed."""


class PlanRun:
    """Runs one plan. stopping: set by a signal handler. report: called about once in `poll_s`."""

    def __init__(
        self,
        admin: ClusterAdmin,
        plan: Plan,
        clock: Clock,
        *,
        stopping: threading.Event,
        report: Callable[[StepProgress], None],
        poll_s: float = POLL_S,
    ) -> None:
        self._admin = admin
        self._plan = plan
        self._clock = clock
        self._stopping = stopping
        self._report = report
        self._poll_s = poll_s

    def check(self, measure_s: float) -> list[StepState]:
        """The state of each step. Raises PlanRefused when the plan must not run now; changes nothing."""
        cluster = self._admin.cluster(measure_s=measure_s)
        states = step_states(self._plan, cluster)
        left = [
            [move for move, state in zip(one.step.moves, one.moves, strict=True) if state is not MoveState.DONE]
            for one in states
        ]
        _check_brokers(cluster, [move for moves in left for move in moves])
        throttle = self._plan.throttle_bytes_s
        check_plan(
            cluster,
            [Step(tuple(moves), step_seconds(moves, cluster, throttle)) for moves in left if moves],
            throttle,
        )
        refusals = [
            *cluster_refusals(cluster, self._plan.moves),
            *foreign_throttles(self._admin, self._plan, cluster.brokers),
        ]
        if refusals:
            raise PlanRefused(refusals)
        return states

    def run(self) -> list[StepState]:
        """Run all steps that are not done; all are done at the end.

        Raises Stopped after a stop; Unavailable when a step makes no progress.

        Removes the throttles at the end, and after a stop or an error first cancels the moves under way.
        """
        try:
            for number in range(1, len(self._plan.steps) + 1):
                self._run_step(number)
        except BaseException:
            # When this fails, the throttles stay, because copies without them would use the whole network.
            self._cancel()
            self._clear_throttles()
            raise
        self._clear_throttles()
        # The state is not read again, because the metadata of another broker may be older.
        return [StepState(step, [MoveState.DONE] * len(step.moves)) for step in self._plan.steps]

    def _run_step(self, number: int) -> None:
        step = self._plan.steps[number - 1]
        cluster = self._admin.cluster()
        states = step_states(replace(self._plan, steps=(step,)), cluster)[0]
        if states.state is MoveState.DONE:
            return
        if refusals := cluster_refusals(cluster, self._plan.moves):
            raise Unavailable(
                f"step {number} of {len(self._plan.steps)} is not begun: {'; '.join(one.text for one in refusals)}",
                reason=refusals[0].reason,
            )
        self._stop_point()
        set_throttles(self._admin, step, self._plan.throttle_bytes_s, cluster.brokers)
        waiting = [move for move, state in zip(step.moves, states.moves, strict=True) if state is MoveState.LEFT]
        self._admin.reassign({move.place: move.after for move in waiting if _replicas(move, cluster) != move.after})
        self._wait(number, step)
        clear_lists(self._admin, step)

    def _wait(self, number: int, step: Step) -> None:
        first: Look | None = None
        best, best_at = (0, -1), self._clock.monotonic()
        while True:
            self._stop_point()
            now = self._clock.monotonic()
            try:
                cluster, mine = self._look(step)
                moves = step_states(replace(self._plan, steps=(step,)), cluster)[0].moves
                done = sum(state is MoveState.DONE for state in moves)
                self._elect(step, cluster)
            except Unavailable as error:  # A broker restarts, for example. The copies of other brokers continue.
                self._stalled(number, now - best_at, error.message)
            else:
                seconds_left = mine.seconds_left(first)
                self._report(
                    StepProgress(number, len(self._plan.steps), done, len(moves), mine.left_bytes, seconds_left)
                )
                if done == len(moves):
                    return
                if (done, -mine.left_bytes) > best or first is None:
                    best, best_at = (done, -mine.left_bytes), now
                self._stalled(number, now - best_at, f"{len(moves) - done} partitions are left")
                first = first or mine
            self._stopping.wait(self._poll_s)

    def _look(self, step: Step) -> tuple[Cluster, Look]:
        """The cluster, and the running copies of the step."""
        cluster = self._admin.cluster()
        seen = look(self._admin, cluster, self._clock.monotonic())
        places = {move.place for move in step.moves}
        return cluster, Look(seen.at_s, [copy for copy in seen.copies if copy.place in places])

    def _stalled(self, number: int, seconds: float, why: str) -> None:
        if seconds > STALL_S:
            raise Unavailable(
                f"step {number} of {len(self._plan.steps)} has made no progress for {STALL_S:g} s: {why}; look at the "
                "logs of the brokers, then apply the plan again",
                reason="reassignment_stalled",
            )

    def _elect(self, step: Step, cluster: Cluster) -> None:
        """Elect the preferred leaders of moved partitions; one that is not in sync yet is elected later."""
        ready = [
            move.place
            for move in step.moves
            for one in [cluster.partitions[move.place]]
            if not one.reassigning
            and one.replicas == move.after
            and one.leader != move.after[0]
            and move.after[0] in one.in_sync
        ]
        if ready:
            self._admin.elect_preferred(ready)

    def _stop_point(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    def _cancel(self) -> None:
        """Cancel the running moves of the plan. Asks only the controller, since other brokers may be away."""
        planned = {move.place: set(move.after) for move in self._plan.moves}
        running = self._admin.running()
        self._admin.cancel(place for place, replicas in running.items() if planned.get(place) == set(replicas))

    def _clear_throttles(self) -> None:
        live = self._admin.live_brokers()
        failures = clear_throttles(self._admin, self._plan, live)
        failures += [
            f"broker {broker} is not alive, and its rates may still be set"
            for broker in sorted(self._plan.brokers - set(live))
        ]
        if failures:
            raise Unavailable(
                f"throttles are left: {'; '.join(failures)}; apply the plan again, which removes them",
                reason="throttles_left",
            )


def step_states(plan: Plan, cluster: Cluster) -> list[StepState]:
    """The state of each step. Raises PlanRefused for a plan of another cluster, or of an earlier state."""
    if plan.cluster_id != cluster.cluster_id:
        text = f"the plan is for cluster {plan.cluster_id}, this is {cluster.cluster_id}"
        raise PlanRefused([Refusal("other_cluster", text)])
    return [StepState(step, [_move_state(move, cluster) for move in step.moves]) for step in plan.steps]


def _move_state(move: Move, cluster: Cluster) -> MoveState:
    one = cluster.partitions.get(move.place)
    if one is None:
        text = f"{move.place} does not exist any more; make a new plan"
        raise PlanRefused([Refusal("unknown_topic", text)])
    if one.reassigning:
        if set(one.target) == set(move.after):
            return MoveState.RUNNING
    elif one.replicas == move.after:
        in_place = one.leader == move.after[0] or move.after[0] not in cluster.brokers
        return MoveState.DONE if in_place and one.in_sync.issuperset(move.added) else MoveState.LEFT
    elif set(one.replicas) in (set(move.before), set(move.after)):
        return MoveState.LEFT
    elif set(one.replicas) == move.brokers:
        return MoveState.RUNNING  # The reassignment has just ended, and this broker's metadata is older.
    text = (
        f"{move.place} has the replicas {list(one.target)}, neither those before ({list(move.before)}) nor after "
        f"({list(move.after)}) the plan; make a new plan"
    )
    raise PlanRefused([Refusal("plan_outdated", text)])


def _replicas(move: Move, cluster: Cluster) -> tuple[int, ...]:
    return cluster.partitions[move.place].replicas


def _check_brokers(cluster: Cluster, moves: Sequence[Move]) -> None:
    dead = sorted({broker for move in moves for broker in move.added} - set(cluster.brokers))
    if dead:
        text = f"brokers {dead} are to receive replicas, but are not alive; start them, or make a new plan"
        raise PlanRefused([Refusal("unknown_broker", text)])
