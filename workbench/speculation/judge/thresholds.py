"""Every number that a verdict on acceptance turns on, in one table."""

from __future__ import annotations

# -- how much is accepted, held against what is expected
ENOUGH = 0.8  # of the expected drafts: fewer is low
SMALL = 0.03  # of the expected length: a smaller loss is not worth a cause
UNSURE = 0.05  # of the expected length: a larger loss that may be chance is no health
MUCH = 1.3  # times the expected drafts: then the expectation is of something else
FAR = 0.5  # of the expected drafts: so much lower is lower, even if they were counted from every place
HARDLY = 0.1  # accepted drafts a round: next to none, and what nobody serves a draft for
STRETCH = (
    0.5  # of the expected drafts: a log that is lower for a tenth of its lines is no clear one
)
APART = 0.3  # of the accepted drafts, by which two counts of one run do not differ
SURE = 1.645  # standard errors: one side of 95 %

# -- how much evidence there must be
FEW_ROUNDS = 20  # below which nothing is concluded
FEW_REQUESTS = 8  # below which samples say little of how much acceptance varies
FEW_LINES = 5  # of a log, below which nothing is concluded

# -- whether the replay does what the engine did
FAITHFUL = 0.95  # of the rounds alike: below, replay and engine compute different things
UNLIKE = 0.85  # and below, what was replayed is not what ran
NEAR = 0.25  # logits: bfloat16 has steps of 1/16 between 8 and 16, and sums differ by a few of them
ENGINE_LOSS = 0.1  # tokens a round that the files accept more than their engine
PRINTS_ROUNDS = 64  # below which no fault of an engine is concluded from the rounds
PRINTS_APART = 3.0  # standard errors between the rounds that two such faults leave unexplained

# -- whether a change is the cause
RESTORED = 0.8  # of the lost acceptance that a cause must bring back
NEEDED = 0.15  # of the loss that the second of a pair must add to either alone
NEAREST = 0.2  # of the loss: what restores less is not called near
PROFILE = 0.6  # of what a position lost, that must come back for the profile to count as restored
VISIBLE = 0.02  # a smaller loss at a position says nothing
