"""The hub's refusals in our words: each says what happened and what to do next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from huggingface_hub import errors as hub_errors

from pooled_nb.errors import ModelNotFound

T = TypeVar("T")

LOGIN = "Log in with: hf auth login"


class HubUnreachable(Exception):
    """The hub does not answer, or must not be asked; ``why`` in a few words, ``status`` where it said one."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.status = status


def unreached(error: HubUnreachable, repo: str, next_step: str, got: int = 0) -> ModelNotFound:
    """Say that a model cannot be had now.

    Parameters
    ----------
    next_step
        Where there is no network; what a hub that answers says has steps of its own.
    got
        Bytes that came before that, and are kept.
    """
    if error.status == 429:
        what = f"The hub asks this device to wait before it fetches more of {repo}: too many requests (429)."
        step = "Start again in some minutes; who is logged in (hf auth login) may ask more often."
    elif error.status:
        what = f"The hub does not work now: {error.why} when asked for {repo}."
        step = "Start again in some minutes, or set HF_ENDPOINT to another mirror."
    elif got:
        what = f"The hub stopped sending {repo}: {error.why}."
        step = next_step
    else:
        what = f"The hub cannot be reached, and {repo} is not in this device's cache ({error.why})."
        step = next_step
    return ModelNotFound(what, keeping(step, got))


def keeping(step: str, got: int) -> str:
    """A next step, and what of the download is kept for it."""
    if not got:
        return step
    size = f"{got / 1e9:.1f} GB" if got >= 1e9 else f"{max(0.1, got / 1e6):.1f} MB"
    return f"{step.removesuffix('.')}; the {size} that came are kept."


def said(repo: str, ask: Callable[[], T]) -> T:
    """Ask the hub, and put its answer into our words."""
    with answering(repo):
        return ask()


@contextlib.contextmanager
def answering(repo: str) -> Iterator[None]:
    """Put what the hub answers in this block into our words.

    Raises
    ------
    HubUnreachable
        It may be there another time.
    ModelNotFound
        It says no.
    """
    try:
        yield
    except hub_errors.HFValidationError as error:
        raise ModelNotFound(
            f"{repo[:80]!r} is no hub id.", "Write it like HuggingFaceTB/SmolLM2-135M-Instruct."
        ) from error
    except hub_errors.GatedRepoError as error:
        raise ModelNotFound(
            f"{repo} is gated: its owner lets only people read it who accepted its terms.",
            f"Accept them at huggingface.co/{repo} with this device's account, then: hf auth login",
        ) from error
    except hub_errors.DisabledRepoError as error:
        raise ModelNotFound(f"The hub has locked {repo}: nobody can read it.", "Choose another.") from error
    except hub_errors.RevisionNotFoundError as error:
        raise ModelNotFound(
            f"{repo} has no such revision.", "Leave the revision out, or check it."
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"The hub has no model {repo}, or it is private.",
            "Check the name; for a private one: hf auth login",
        ) from error
    except hub_errors.LocalEntryNotFoundError as error:
        raise HubUnreachable("the download cannot begin") from error
    except hub_errors.EntryNotFoundError as error:
        raise ModelNotFound(f"{repo} lacks a file that its list names.", "Choose another model.") from error
    except hub_errors.OfflineModeIsEnabled as error:
        raise HubUnreachable("HF_HUB_OFFLINE is set") from error
    except hub_errors.HfHubHTTPError as error:
        raise _by_status(repo, error.response.status_code if error.response is not None else 0) from error
    except Exception as error:
        if is_network(error):
            raise HubUnreachable(type(error).__name__) from error
        raise


def _by_status(repo: str, status: int) -> Exception:
    if status == 401:
        return ModelNotFound(f"The hub does not know who asks for {repo}.", LOGIN)
    if status == 403:
        return ModelNotFound(
            f"The hub does not let this device's account read {repo}.",
            "Ask its owner, or log in with another account: hf auth login",
        )
    if status == 404:
        return ModelNotFound(f"The hub does not have a file of {repo}.", "Choose another model.")
    if status in (402, 507):
        return ModelNotFound(
            f"The quota of this account, or of the owner of {repo}, is used up.",
            "Wait until it is renewed, or log in with another account: hf auth login",
        )
    if status == 429 or status >= 500:
        return HubUnreachable(f"it answered {status}", status)
    if not status:
        return HubUnreachable("it gave no answer")
    return ModelNotFound(
        f"The hub refuses {repo}: it answered {status}.", "Update huggingface_hub, or choose another model."
    )


def is_network(error: BaseException) -> bool:
    """Whether an error is of the network.

    Which HTTP library is below differs between versions of huggingface_hub: told by its home.
    """
    homes = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return isinstance(error, OSError) or bool(homes & {"httpx", "httpx2", "requests"})
