"""Which states are kept, and which one a prompt goes on from: no network, no time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.checkpoints import LAST_SLOT, Checkpoints
from pooled_nb.room.control import Riding
from pooled_nb.shard import Control


@dataclass
class Device:
    """What one device keeps, told by control alone."""

    slots: dict[int, int] = field(default_factory=dict)
    loaded: int = 0

    def frame(self, control: Control, length: int) -> None:
        if control.sv:
            assert control.sv not in self.slots, "never reused while kept"
            assert 1 <= control.sv <= LAST_SLOT
            self.slots[control.sv] = length
        for slot in list(self.slots) if 0xFFFF in control.dp else control.dp:
            self.slots.pop(slot, None)
        if control.ld:
            self.loaded = self.slots[control.ld]


def states(n: int) -> list[bool]:
    return [False] * n


def keep(*lengths: int, recent: int = 2) -> tuple[Checkpoints, Riding]:
    """Answers that ended at these lengths of one conversation, each followed by a frame."""
    riding = Riding()
    kept = Checkpoints(riding, recent)
    for n in lengths:
        kept.save(list(range(n)), states(n))
        kept.going()
        riding.take()
    return kept, riding


def held(kept: Checkpoints) -> list[int]:
    return [len(k.ids) for k in kept.kept]


def best(kept: Checkpoints, ids: list[int], generated: list[bool] | None = None, above: int = 0) -> int:
    found = kept.best(ids, generated or states(len(ids)), above=above)
    return len(found.ids) if found else 0


def test_the_last_two_are_kept() -> None:
    """PROTOCOL section 7: "after each answer `sv` on the next frame; the last 2 (setting)"."""
    assert held(keep(10, 20, 30)[0]) == [20, 30]
    assert held(keep(10, 20, 30, recent=1)[0]) == [30]
    assert held(keep(10, 20, recent=0)[0]) == []
    kept, riding = keep(10, 20)
    kept.save(list(range(30)), states(30))
    kept.going()
    control = riding.take()
    assert control.sv
    assert len(control.dp) == 1, "what is above the most goes with the frame that saves the next"


def test_the_longest_proper_prefix_is_taken() -> None:
    """PROTOCOL section 7: "the longest checkpoint that is one" of prompt's proper prefixes; else nothing."""
    kept, _ = keep(10, 20)
    assert best(kept, list(range(25))) == 20
    assert best(kept, list(range(20))) == 10, "a proper one"
    assert best(kept, list(range(25)), above=20) == 0, "no longer than what the caches hold"
    assert best(kept, [*range(15), 99, *range(16, 25)]) == 10
    assert best(kept, [99, *range(1, 25)]) == 0
    assert best(kept, list(range(25)), [True, *states(24)]) == 0, "of another frame class: other bits"


def test_a_state_that_is_of_use_stays() -> None:
    """PROTOCOL section 7, `ai-cmd`: made anew twice, an answer finds the state before it both times."""
    kept, riding = keep(10, 20)
    prompt = list(range(15))
    for _ in range(3):
        assert best(kept, prompt) == 10
        kept.going(ld=1)
        riding.take(ld=1)
        kept.save([*prompt, 77, len(held(kept)), riding.save], states(18))
        kept.going()
        riding.take()
    assert 10 in held(kept)


def test_what_goes_on_is_saved_once() -> None:
    """PROTOCOL section 7: an answer in two parts is one answer; what waits to be saved may be let be."""
    kept, riding = keep(10)
    kept.save(list(range(20)), states(20))
    kept.unsave()
    kept.going()
    assert riding.take() == Control()
    kept.save(list(range(30)), states(30))
    assert held(kept) == [10, 30]


def test_a_new_chat_keeps_its_system_prompt() -> None:
    """PROTOCOL section 7: "plus a pinned system prompt"; a new one takes its place."""
    kept, riding = keep(10, 20)
    kept.pin(list(range(5)), states(5))
    pinned = riding.take().sv
    kept.save(list(range(30)), states(30))
    kept.new_chat()
    assert held(kept) == [5]
    control = riding.take(reset=True)
    assert control.sv == 0
    assert len(control.dp) == 2
    assert best(kept, list(range(9))) == 5
    kept.pin([9, 8, 7], states(3))
    control = riding.take()
    assert control.dp == (pinned,)
    assert control.sv not in (0, pinned)
    assert held(kept) == [3]


def test_a_failure_drops_everything() -> None:
    """PROTOCOL section 7: "Any failed lap, fresh engine or re-deal drops all"."""
    kept, riding = keep(10, 20)
    kept.pin(list(range(5)), states(5))
    kept.save(list(range(30)), states(30))
    kept.lost()
    assert held(kept) == []
    assert riding.take(reset=True) == Control(reset=True, dp=(0xFFFF,))


def test_slot_numbers_go_round() -> None:
    """PROTOCOL section 5: "Slots are 1..65534, never reused while kept", nor while their drop waits."""
    riding = Riding()
    kept = Checkpoints(riding, 2)
    kept._newest = LAST_SLOT - 1
    numbers = []
    for n in range(1, 6):
        kept.save(list(range(n)), states(n))
        numbers.append(riding.save)
        kept.going()
    assert numbers == [LAST_SLOT, 1, 2, 3, 4]
    kept._newest = LAST_SLOT
    kept.save([9], [True])
    assert riding.save not in {1, 2, 3, 4, LAST_SLOT}, "dropped, but no frame has said so yet"


STEP = st.sampled_from(["ask", "ask", "other", "regen", "continue", "reset", "pin", "fail"])


@settings(deadline=None, max_examples=150)
@given(st.lists(STEP, max_size=25), st.integers(0, 3), st.data())
def test_host_and_devices_agree(steps: list[str], recent: int, data: st.DataObject) -> None:
    """PROTOCOL section 5: told by control alone, a device holds what the host counts on, at any moment."""
    riding, device = Riding(), Device()
    kept = Checkpoints(riding, recent)
    fed: list[int] = []
    chat: list[int] = []
    for number, step in enumerate(steps):
        if step in ("regen", "continue"):
            kept.unsave()
        prompt = [*chat, 1000 + number, 7]
        if step == "regen" and chat:
            prompt = chat[: data.draw(st.integers(1, len(chat)))]
        if step == "other":
            prompt = [5000 + number, *prompt]
        if step == "fail":
            kept.lost()
            fed = []
            continue
        if step == "reset":
            kept.new_chat()
            fed, chat = [], []
            continue
        own = len(fed) if len(fed) < len(prompt) and prompt[: len(fed)] == fed else 0
        found = kept.best(prompt, states(len(prompt)), above=own)
        kept.going(ld=found.slot if found else 0)
        control = riding.take(reset=not own and not found, ld=found.slot if found else 0)
        device.frame(control, len(fed))
        if found:
            assert device.loaded == len(found.ids)
            assert prompt[: len(found.ids)] == found.ids
        if step == "pin" and not own and not found and len(prompt) > 1:
            kept.pin(prompt[:1], states(1))
            device.frame(riding.take(), 1)
        fed = [*prompt, 9000 + number]
        kept.save(fed, states(len(fed)))
        chat = fed if step != "other" else chat
        waiting = {riding.save} - {0}
        assert {k.slot for k in kept.kept} - waiting <= set(device.slots)
        assert len(device.slots) <= recent + 2 + len(riding.dropping)
