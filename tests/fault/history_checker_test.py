"""The history checker finds what is wrong, and nothing else: histories made by hand, each with what a server may, or may not, have done."""

import unittest

from history_checker import Op, check

V, B = "volumes/1", "buffers/1"


def op(kind, begin, end, outcome="ok", reason="", object=V, **args):
    return Op(kind, object, begin, end, outcome, reason, args)


def create(**args):
    return op("create", 0, 1, digest=7, **args)


def commit(begin, end, outcome="ok", reason="", request="r", destination="d"):
    return op("commit", begin, end, outcome, reason, request=request, destination=destination)


def get(begin, state):
    return op("get", begin, begin + 0.5, state=state)


def restart(begin, end):
    return op("restart", begin, end, object="")


def lease(begin, end, mode, released=None, outcome="ok", object=V):
    return op("lease", begin, end, outcome, object=object, mode=mode, **({"released": released} if released else {}))


def buffer(*more):
    return [op("create", 0, 1, object=B, value=1), *more]


FILE = {"d": 7}
RIGHT = {
    "committed": ([create(), commit(2, 3), get(4, "COMMITTED")], FILE),
    "seen while it is committed": ([create(), commit(2, 5), get(3, "COMMITTING"), op("discard", 3, 4, "failed", "VOLUME_STATE")], FILE),
    "a retry": ([create(), commit(2, 3), commit(4, 5)], FILE),
    "a retry beside the first": ([create(), commit(2, 6), commit(3, 5)], FILE),
    "one of two wins": ([create(), commit(2, 4), op("discard", 2, 4, "failed", "VOLUME_STATE")], FILE),
    "the other one wins": ([create(), commit(2, 4, "failed", "VOLUME_STATE"), op("discard", 2, 4)], {}),
    "two discards": ([create(), op("discard", 2, 4), op("discard", 3, 5), get(6, "DISCARDED")], {}),
    "cancelled, then committed": ([create(), commit(2, 3, "failed", "COMMIT_CANCELLED", "a", "e"), get(4, "HELD"), commit(5, 6)], FILE),
    "refused while one runs that is cancelled": ([create(), commit(2, 6, "failed", "COMMIT_CANCELLED", "a", "e"), op("discard", 3, 4, "failed", "VOLUME_STATE"), op("discard", 7, 8)], {}),
    "unknown, and done": ([create(), commit(2, 3, "unknown"), get(4, "COMMITTED")], FILE),
    "unknown, and not done": ([create(), commit(2, 3, "unknown"), get(4, "HELD")], {}),
    "unknown, and done later": ([create(), op("discard", 2, 3, "unknown"), get(4, "HELD"), get(5, "DISCARDED")], {}),
    "read before the end": ([create(), op("read", 2, 9, digest=7), op("discard", 3, 4)], {}),
    "killed": ([create(), restart(2, 3), get(4, "NO_VOLUME")], {}),
    "killed, and told": ([create(), restart(2, 3), get(4, "LOST"), op("hold", 5, 6, "failed", "LOST")], {}),
    "committed, killed, and told": ([create(), commit(2, 3), restart(4, 5), get(6, "VOLUME_GONE")], FILE),
    "killed after the commit": ([create(), commit(2, 3), restart(4, 5), get(6, "NO_VOLUME")], FILE),
    "killed in the commit": ([create(), commit(2, 4, "unknown"), restart(3, 5), get(6, "NO_VOLUME")], FILE),
    "killed in the commit, which left nothing": ([create(), commit(2, 4, "unknown"), restart(3, 5), get(6, "NO_VOLUME")], {}),
    "spilled and killed": ([create(), op("spill", 2, 3), restart(4, 5), get(6, "HELD"), op("read", 7, 8, digest=7)], {}),
    "restored and killed": ([create(), op("spill", 2, 3), op("restore", 3.1, 3.9), restart(4, 5), get(6, "NO_VOLUME")], {}),
    "moving": ([create(), op("spill", 2, 4), op("restore", 3, 3.5, "failed", "MOVING")], {}),
    "leases in turn": ([lease(1, 2, "exclusive", (3, 4)), lease(3.5, 5, "exclusive", (6, 7))], {}),
    "shared leases": ([lease(1, 2, "shared", (6, 7)), lease(3, 4, "shared", (6, 7))], {}),
    "refused for a lease": ([create(), lease(1, 2, "shared", (6, 7)), op("discard", 3, 4, "failed", "LEASED"), op("discard", 8, 9)], {}),
    "a lease dies with the server": ([lease(1, 2, "exclusive"), restart(3, 4), lease(5, 6, "exclusive")], {}),
    "a buffer": (buffer(op("write", 2, 3, object=B, value=2), op("read", 4, 5, object=B, value=2), op("destroy", 6, 7, object=B),
                        op("read", 8, 9, "failed", "NO_BUFFER", object=B)), {}),
    "a write beside a read": (buffer(op("write", 2, 5, object=B, value=2), op("read", 3, 4, object=B, value=1)), {}),
    "a write that may have been": (buffer(op("write", 2, 3, "unknown", object=B, value=2), op("read", 4, 5, object=B, value=1), op("read", 6, 7, object=B, value=2)), {}),
}
WRONG = {
    "an acknowledged commit without a file": ([create(), commit(2, 3)], {}),
    "a file that is not whole": ([create(), commit(2, 3)], {"d": "torn"}),
    "a file of other voxels": ([create(), commit(2, 3)], {"d": 8}),
    "a file of a commit that was refused": ([create(), commit(2, 3, "failed", "VOLUME_STATE"), op("discard", 1.5, 4)], FILE),
    "a file of nobody": ([create()], {"x": 7}),
    "two commits": ([create(), commit(2, 3), commit(4, 5, request="s", destination="e")], {"d": 7, "e": 7}),
    "two commits at once": ([create(), commit(2, 5), commit(3, 4, request="s", destination="e")], {"d": 7, "e": 7}),
    "a retry that wrote again": ([create(), commit(2, 3), commit(4, 5, destination="e")], {"d": 7, "e": 7}),
    "discarded and committed": ([create(), op("discard", 2, 4), commit(2, 4)], FILE),
    "both of two lose": ([create(), commit(2, 4, "failed", "VOLUME_STATE"), op("discard", 2, 4, "failed", "VOLUME_STATE")], {}),
    "refused without a reason": ([create(), op("discard", 2, 3, "failed", "VOLUME_STATE"), get(4, "HELD")], {}),
    "moving without a move": ([create(), op("restore", 3, 3.5, "failed", "MOVING")], {}),
    "held after a commit": ([create(), commit(2, 3), get(4, "HELD")], FILE),
    "held after a discard": ([create(), op("discard", 2, 3), get(4, "HELD")], {}),
    "read after a discard": ([create(), op("discard", 2, 3), op("read", 4, 5, digest=7)], {}),
    "held again after unknown": ([create(), op("discard", 2, 3, "unknown"), get(4, "DISCARDED"), get(5, "HELD")], {}),
    "discarded, killed and held": ([create(), op("spill", 1.2, 1.4), op("discard", 2, 3), restart(4, 5), get(6, "HELD")], {}),
    "committed, killed and held": ([create(), op("spill", 1.2, 1.4), commit(2, 3), restart(4, 5), get(6, "HELD")], FILE),
    "a commit told as lost": ([create(), commit(2, 3), restart(4, 5), get(6, "LOST")], FILE),
    "told as lost without a kill": ([create(), get(4, "LOST")], {}),
    "a commit lost by the kill": ([create(), commit(2, 3), restart(4, 5), get(6, "NO_VOLUME")], {}),
    "spilled and lost by the kill": ([create(), op("spill", 2, 3), restart(4, 5), get(6, "NO_VOLUME")], {}),
    "an unknown call that took effect after the server's death": ([create(), op("spill", 1.2, 1.4), op("discard", 2, 3, "unknown"), restart(3, 4), get(5, "HELD"), get(6, "DISCARDED")], {}),
    "other voxels": ([create(), op("read", 2, 3, digest=8)], {}),
    "seen before it was there": ([op("get", -2, -1, state="HELD"), create()], {}),
    "a verb before it was there": ([op("hold", -2, -1), create()], {}),
    "two exclusive leases": ([lease(1, 2, "exclusive", (6, 7)), lease(3, 4, "exclusive", (5, 5.5))], {}),
    "a shared one beside it": ([lease(1, 2, "exclusive", (6, 7)), lease(3, 4, "shared", (5, 5.5))], {}),
    "ended under a lease": ([create(), lease(1, 2, "shared", (6, 7)), op("discard", 3, 4)], {}),
    "refused for no lease": ([create(), lease(1, 2, "shared", (3, 4)), op("discard", 5, 6, "failed", "LEASED"), op("discard", 8, 9)], {}),
    "an old value": (buffer(op("write", 2, 3, object=B, value=2), op("read", 4, 5, object=B, value=1)), {}),
    "a value of nobody": (buffer(op("read", 4, 5, object=B, value=3)), {}),
    "a value that comes back": (buffer(op("write", 2, 9, object=B, value=2), op("read", 3, 4, object=B, value=2), op("read", 5, 6, object=B, value=1)), {}),
    "a buffer that is gone and there": (buffer(op("destroy", 2, 3, object=B), op("read", 4, 5, object=B, value=1)), {}),
    "a buffer that is there and gone": (buffer(op("read", 4, 5, "failed", "NO_BUFFER", object=B)), {}),
    "a buffer after the kill": (buffer(restart(2, 3), op("read", 4, 5, object=B, value=1)), {}),
}


class Checker(unittest.TestCase):
    def test_right(self):
        for name, (ops, files) in RIGHT.items():
            with self.subTest(name):
                self.assertEqual(check(ops, files), [])

    def test_wrong(self):
        for name, (ops, files) in WRONG.items():
            with self.subTest(name):
                self.assertNotEqual(check(ops, files), [])

    def test_many_at_once(self):
        """It is fast enough where sixteen clients want one volume."""
        ops = [create()] + [op("discard", 2 + i / 100, 5, "failed", "VOLUME_STATE") for i in range(15)] + [commit(2, 6), get(7, "COMMITTED")]
        self.assertEqual(check(ops, FILE), [])
        self.assertNotEqual(check(ops[:-2] + [get(7, "HELD")], {}), [])


if __name__ == "__main__":
    unittest.main()
