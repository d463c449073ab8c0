"""Panels over scripted sources, and what a view of them shows."""

from __future__ import annotations

from typing import Any

from pooled_nb.widgets.answer_panel import AnswerPanel
from pooled_nb.widgets.room_panel import RoomPanel
from tests.widgets.conftest import FakeComm
from tests.widgets.fakes import STATIC, FakeAnswer, FakeRoom


def of(panel: Any) -> FakeComm:
    comm: FakeComm = panel.comm
    return comm


def room_panel(source: FakeRoom) -> RoomPanel:
    return RoomPanel(source, fallback=lambda: STATIC)


def answer_panel(source: FakeAnswer) -> AnswerPanel:
    return AnswerPanel(source, fallback=lambda: STATIC)


def text_of(comm: FakeComm) -> str:
    """What a view shows that has seen everything."""
    id, text, seq = None, "", 0
    state = dict(comm.opened)
    for _, data in list(comm.sent):
        if data["method"] == "update":
            state |= data["state"]
            if state["answer"]["id"] != id or state["seq"] >= seq:
                id, text, seq = state["answer"]["id"], state["text"], state["seq"]
        elif data["content"]["id"] == id and data["content"]["seq"] == seq + 1:
            text, seq = text + data["content"]["text"], seq + 1
    return text
