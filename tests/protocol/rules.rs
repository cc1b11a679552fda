//! The rules of the protocol, as switches.

/// What can be left out, to see what it was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Rule {
    // 1: scripts are idempotent for their token; a claim of unknown outcome is undone.
    FreshTokens,
    ClaimTwice,
    FillTwice,
    Undo,
    Tombstone,
    // 2: local fills are fenced.
    LocalFence,
    SampleBeforeClaim,
    FencedOffNowhere,
    // 3: a purge or a gap detaches the flights under way.
    DetachOnPurge,
    DetachOnGap,
    PurgeAgainAfterTier,
    HeedOwnEvents,
    // 4: claims, fills and markers are compared with the purge record.
    ClaimComparesRecord,
    FillComparesRecord,
    FencedFillFreesLease,
    MarkerComparesRecord,
    MemoComparesPurges,
    // 5: markers and memos stand beside the entry.
    EntrySurvivesFailure,
    StaleBeforeFailure,
    MemoOnlyIfOurs,
    StoredClearsMarker,
    FailureIsTold,
    FailureOfTheAwaited,
    // 6: nobody waits under a hit-for-miss marker, and one probe claims.
    FreeUnderMarker,
    ProbeClaims,
    // 7: events only wake; polls beneath them, shorter than the memo's life.
    EventsOnlyWake,
    PollsBeneath,
    PollsBelowMemo,
    // 8: leases are short, renewed, and whoever lost one stores nothing.
    LeaseExpires,
    Renewal,
    FillOnlyIfOurs,
    ReleaseOnlyIfOurs,
    // 9: after a gap the local tier is distrusted, then dropped.
    DistrustInGap,
    DropAfterGap,
    // 10: a request waits for the server only so long.
    Budget,
    // 11: busy and stale within the window answers at once.
    StaleWhileBusy,
    // 12: an older build does not replace a younger one, nor does a failure speak beside an entry.
    YoungerStays,
    EntrySilencesFailure,
    // Who renews takes nothing that was there before, and what came of it is told beside that.
    RefusalLasts,
    FoundIsNotNew,
    RenewalIsTold,
    // 13: the proof of the key is compared in the claim.
    Proof,
}

/// The rules in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules(u64);

impl Rules {
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn without(self, rule: Rule) -> Self {
        Self(self.0 & !(1 << rule as u8))
    }

    pub(crate) fn have(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u8) != 0
    }
}
