import asyncio

from pooled_nb.room.loading import Loading, Trouble


def test_a_start_is_done_when_all_are_ready() -> None:
    """PROTOCOL section 6: ``ai-ready`` of every device of the chain."""

    async def scenario() -> None:
        loading = Loading({"h": "host", "a": "attic"})
        waiting = asyncio.create_task(loading.settled())
        loading.is_ready("h")
        await asyncio.sleep(0)
        assert not waiting.done()
        loading.is_ready("stranger")
        loading.is_ready("a")
        assert await waiting is None

    asyncio.run(scenario())


def test_the_first_trouble_counts() -> None:
    """PROTOCOL section 6: ``ai-error {load: 1}``: the room deals without that device."""

    async def scenario() -> None:
        loading = Loading({"h": "host", "a": "attic", "b": "barn"})
        loading.failed("stranger", "not ours")
        loading.failed("a", "no licence")
        loading.failed("b", "later")
        assert await loading.settled() == Trouble("a", "attic", "no licence")

    asyncio.run(scenario())


def test_progress_never_goes_back() -> None:
    """PROTOCOL section 6, ``ai-hostprog``: the slowest device is how far the room is."""
    loading = Loading({"h": "host", "a": "attic"})
    loading.progress("a", 40)
    loading.progress("a", 20)
    loading.progress("stranger", 90)
    assert loading.by_name() == {"host": 0, "attic": 40}
    loading.is_ready("h")
    loading.progress("h", 3)
    assert loading.total == 40
    assert loading.by_name() == {"host": 100, "attic": 40}


def test_checkpoints_are_used_only_where_every_device_keeps_them() -> None:
    """PROTOCOL section 6: ``ckpt`` counts when the whole chain says it."""
    loading = Loading({"h": "host", "a": "attic"})
    loading.is_ready("h", ckpt=True)
    loading.is_ready("stranger")
    loading.is_ready("a", ckpt=True)
    assert loading.ckpt
    old = Loading({"h": "host", "a": "attic"})
    old.is_ready("h", ckpt=True)
    old.is_ready("a")
    assert not old.ckpt


def test_who_was_killed_and_who_is_told_again() -> None:
    """PROTOCOL section 6, ``ai-share``; section 3: who came back is told once more."""

    async def scenario() -> None:
        loading = Loading({"h": "host", "a": "attic"})
        loading.is_ready("a")
        loading.again("stranger")
        loading.again("a")
        assert loading.by_name() == {"host": 0, "attic": 0}
        waiting = asyncio.create_task(loading.settled())
        loading.is_ready("h")
        await asyncio.sleep(0)
        assert not waiting.done()
        loading.failed("a", "killed", killed=True)
        assert await waiting == Trouble("a", "attic", "killed", killed=True)

    asyncio.run(scenario())
