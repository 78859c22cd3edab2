"""Checks what clients saw of a server against a model of its objects. Pure: it knows nothing of the server, only of the history.

A history is a list of Op: when a call began and returned, and its outcome: "ok", "failed" (the server refused it, with a reason: it has had no
effect, unless it says that it ended early), or "unknown" (the connection or the deadline ended: it may have had its effect at any time before
the server died, or never). The history of an object is right if an order of its operations explains every outcome, in which one that
returned before another one began comes first (it is linearizable). Work that takes time begins and ends: other calls see it between."""

import collections
import math
from typing import NamedTuple

EVERYTHING = ""  # the object of a "restart", which concerns all


class Op(NamedTuple):
    kind: str
    object: str
    begin: float
    end: float
    outcome: str
    reason: str = ""
    args: dict = {}
    client: str = ""

    def __str__(self):
        return f"{self.begin:9.4f} to {self.end:9.4f}  {self.client:10} {self.kind} {self.outcome} {self.reason} {self.args or ''}"


NOT_HELD = ("VOLUME_STATE", "VOLUME_GONE", "NO_VOLUME")
GONE = (*NOT_HELD, "LOST")  # LOST of a commit speaks of the commit


class Volume(NamedTuple):
    """phase: none, held, committing, committed, discarded, lost; who: the request that commits it; tier: device, disk, or of a commit that a
    restart has finished "recovered"; moves: how many run now."""
    phase: str = "none"
    who: str = ""
    tier: str = "device"
    moves: int = 0
    restarts: int = 0

    two_parts = ("commit", "spill", "restore")

    def step(self, op, part):
        """The states that may come after a part of an operation; none = it cannot happen now."""
        ok, phase = op.outcome != "failed", self.phase
        if op.kind == "restart":
            return self._restarted()
        if op.kind == "create":
            return [self._replace(phase="held")] if phase == "none" else []
        if op.kind == "get":
            return [self] * (op.args["state"] in self._seen())
        if op.kind in ("spill", "restore") and op.reason != "MOVING":
            return self._move(op, part)
        if not ok and op.reason in (NOT_HELD if op.kind == "commit" else GONE):
            refuses = {"read": phase not in ("held", "committing"), "discard": phase not in ("held", "discarded") or self.restarts > 0}
            return [self] * refuses.get(op.kind, phase != "held")
        if not ok and op.reason == "MOVING":
            return [self] * (self.moves > 0)
        if op.kind == "commit":
            return self._commit(op, part)
        if not ok:
            return [self]
        if op.kind == "discard":
            return [self._replace(phase="discarded")] if phase in ("held", "discarded") else []
        return [self] * (phase in ("held", "committing"))  # read, hold, release

    def _move(self, op, part):
        """It runs beside all else; it fails if the volume leaves meanwhile."""
        there, fewer = self.phase in ("held", "committing"), self._replace(moves=max(0, self.moves - 1))
        moved = fewer._replace(tier=op.args.get("tier", "disk") if op.kind == "spill" else "device")
        if op.outcome == "failed" and op.reason in GONE:
            return [self._replace(moves=self.moves + 1)] * there + [self] * (self.phase != "held") if part == 0 else [fewer] * (self.phase != "held")
        if part == 0:
            return [self._replace(moves=self.moves + 1)] * there
        return {"ok": [moved], "failed": [fewer], "unknown": [moved, fewer]}[op.outcome]

    def _commit(self, op, part):
        request, begun = op.args["request"], self.phase == "committing" and self.who == op.args["request"]
        done = self.phase == "committed" and self.who == request
        back, to_the_end = self._replace(phase="held", who=""), self._replace(phase="committed", who=request)
        if part == 0:
            return [self] * (begun or done) + [self._replace(phase="committing", who=request)] * (self.phase == "held") + [self] * (op.outcome == "failed")
        if op.reason == "LOST":  # what it did at the restart may have made a file of it
            return [self] * (self.restarts > 0 and not (done and self.tier != "recovered"))
        if op.outcome == "failed":  # it was cancelled or ran into an error; or it is a retry of such a one
            return [back] if begun else [self]
        return ([to_the_end] + [back] * (op.outcome == "unknown")) if begun else [self] * done

    def _restarted(self):
        new = self._replace(moves=0, restarts=self.restarts + 1)
        on_disk, lost = new._replace(phase="held", who="", tier="disk"), new._replace(phase="lost")
        if self.phase == "held":
            return [on_disk, lost] if self.moves else [on_disk if self.tier == "disk" else lost]
        if self.phase == "committing":
            return [new._replace(phase="committed", tier="recovered"), on_disk if self.tier == "disk" or self.moves else lost]
        return [new]

    def _seen(self):
        """The states that a get may tell; of errors the reasons. A restart knows of what had left, or was lost, as far as that was written down: it takes one
        for LOST that left in the last moment."""
        now = {"held": ["HELD"], "committing": ["COMMITTING"], "committed": ["COMMITTED"], "discarded": ["DISCARDED"], "none": ["NO_VOLUME"], "lost": ["LOST", "NO_VOLUME"]}
        later = {"committed": ["VOLUME_GONE", "NO_VOLUME"], "discarded": ["VOLUME_GONE", "NO_VOLUME", "LOST"]}
        return now[self.phase] + (later.get(self.phase, []) if self.restarts > 0 else [])


class Buffer(NamedTuple):
    phase: str = "none"
    value: int = 0

    two_parts = ()

    def step(self, op, part):
        if op.kind == "restart":
            return [self._replace(phase="gone")]
        if op.outcome == "failed":
            return [self] * (op.reason != "NO_BUFFER" or self.phase != "live")
        if op.kind == "create":
            return [Buffer("live", op.args["value"])] * (self.phase == "none")
        if op.kind == "destroy":
            return [self._replace(phase="gone")] * (self.phase in ("live", "gone"))
        if op.kind == "write":
            return [self._replace(value=op.args["value"])] * (self.phase == "live")
        return [self] * (self.phase == "live" and self.value == op.args["value"])


def explained(ops, state):
    """Whether an order of the operations on one object explains their outcomes, from a state on."""
    events = []  # (operation, part); the second part of one follows its first
    for op in sorted(ops, key=lambda op: op.begin):
        if op.outcome == "unknown" and op.kind in ("read", "get"):
            continue  # it tells nothing
        refused_at_once = op.outcome == "failed" and op.reason in ("MOVING", "LEASED", *(NOT_HELD if op.kind == "commit" else ()))
        events += [(op, part) for part in range(2 if op.kind in state.two_parts and not refused_at_once else 1)]
    required = sum(1 << i for i, (op, _) in enumerate(events) if op.outcome != "unknown")
    seen, open_ = set(), [(0, state)]
    while open_:
        done, state = open_.pop()
        if done & required == required:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        left = [i for i in range(len(events)) if not done >> i & 1]
        latest = min(events[i][0].end for i in left if events[i][0].outcome != "unknown")
        died = max([op.begin for i, (op, _) in enumerate(events) if done >> i & 1 and op.kind == "restart"], default=-math.inf)
        for i in left:
            op, part = events[i]
            if op.begin > latest or (part == 1 and not done >> (i - 1) & 1) or (op.outcome == "unknown" and op.begin < died):
                continue
            open_ += [(done | 1 << i, after) for after in state.step(op, part)]
    return False


def check_objects(ops):
    restarts = [op for op in ops if op.kind == "restart"]
    by_object, problems = collections.defaultdict(list), []
    for op in ops:
        if op.object and op.kind not in ("lease",):
            by_object[op.object].append(op)
    for name, own in sorted(by_object.items()):
        digests = {op.args["digest"] for op in own if op.outcome == "ok" and "digest" in op.args}
        if len(digests) > 1:
            problems.append(f"{name} had the digests {digests}")
        first = min(op.begin for op in own)
        concerned = own + [restart for restart in restarts if restart.end > first]
        if not explained(concerned, Volume() if name.startswith("volumes/") else Buffer()):
            problems.append(f"{name}: no order explains\n  " + "\n  ".join(str(op) for op in sorted(concerned, key=lambda op: op.begin)))
    return problems


def check_leases(ops):
    """Leases in real time. args: mode, released (begin, end; absent: never). An exclusive one excludes all others, and a shared one of a volume
    its end by others; a call that is refused for a lease ran while another client may have had one."""
    restarts, problems = [op for op in ops if op.kind == "restart"], []
    surely, perhaps, ends = collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list)
    for op in ops:
        if op.kind in ("commit", "discard", "destroy") and op.outcome == "ok" and not op.args.get("own_lease"):
            ends[op.object].append(op)
        if op.kind == "lease" and op.outcome != "failed":
            died = next((restart for restart in restarts if restart.begin > op.begin), None)
            begin, end = op.args.get("released", (math.inf, math.inf))
            perhaps[op.object].append((op.begin, min(end, died.end if died else math.inf), op))
            if op.outcome == "ok":
                surely[op.object].append((op.end, min(begin, died.begin if died else math.inf), op))
        if op.kind == "write":  # it leases the buffer while it lasts, also one that fails in the end
            perhaps[op.object].append((op.begin, math.inf if op.outcome == "unknown" else op.end, op))
        if op.kind == "lease" and op.outcome == "failed":  # it may have come just when the client had given up
            perhaps[op.object].append((op.begin, op.end, op))
    for name, held in surely.items():
        held.sort(key=lambda one: one[0])
        for i, (begin, end, op) in enumerate(held):
            for later_begin, _, later in held[i + 1:]:
                if later_begin < end and "exclusive" in (op.args["mode"], later.args["mode"]):
                    problems.append(f"{name}: two leases at once\n  {op}\n  {later}")
        for op in ends[name]:
            problems += [f"{name}: ended under a lease\n  {lease}\n  {op}" for begin, end, lease in held if begin < op.begin and op.end < end]
    for op in ops:
        if op.reason == "LEASED" and not any(begin < op.end and op.begin < end for begin, end, lease in perhaps[op.object] if lease is not op):
            problems.append(f"{op.object}: refused for a lease that there was not\n  {op}")
    return problems


def check_files(ops, files):
    """files: destination → digest of what is there ("torn": it is not whole). Every acknowledged commit is there, once, and nothing else."""
    problems, made = [], {op.object: op.args["digest"] for op in ops if op.kind == "create" and "digest" in op.args}
    wanted, allowed, of = {}, collections.defaultdict(set), collections.defaultdict(set)
    for op in ops:
        if op.kind == "commit" and op.outcome == "ok":
            wanted[op.args["destination"]] = op.object
        if op.kind == "commit" and (op.outcome != "failed" or op.reason == "LOST"):
            allowed[op.args["destination"]].add(op.object)
    for destination, name in wanted.items():
        if destination not in files:
            problems.append(f"{destination}: the acknowledged commit of {name} is lost")
    for destination, digest in files.items():
        if not any(made.get(name) == digest for name in allowed[destination]):
            problems.append(f"{destination} has the digest {digest}; a commit of {sorted(allowed[destination]) or 'nobody'} may have made it")
        for name in allowed[destination]:
            of[name].add(destination)
    problems += [f"{name} was committed twice: {sorted(destinations)}" for name, destinations in of.items() if len(destinations) > 1]
    return problems


def check(ops, files):
    """The problems of a history, for people; none if it is right."""
    return check_objects(ops) + check_leases(ops) + check_files(ops, files)
