//! The shared tier's protocol, explored state by state.
//!
//! Processes ask for one key; a server runs their scripts, each in one atomic step. Whatever is on
//! its way may come late, twice, or unheard; events may be late or lost; leases run out, clients go
//! away, processes crash. A search goes through all of it, breadth first, and checks that:
//!
//! - I1: one build at a time while leases are alive (builds that a purge fences aside), and one in
//!   each process in any case;
//! - I6: nobody who comes after a purge was handled in its process gets what was built before it;
//! - I7: a lost lease stores nothing, in either tier;
//! - I12: whoever holds a lease knows it, or gives it back; at rest there is no lease, no flight;
//! - I13: failures are shared, not retried in turn, and a stale entry stands in for them;
//! - I14: nobody waits under a hit-for-miss marker, and the first storable response clears it;
//! - I15: nobody gets the response of another key;
//! - every waiter ends, and asks only so often.
//!
//! With all rules on nothing breaks ([`right`]); without any one of them something does ([`wrong`]):
//!
//! | rule | without it |
//! |---|---|
//! | 1 a fresh token for each claim | the undo of an old claim frees the lease of a new one: two builds |
//! | 1 a claim finds its own lease | sent twice, it waits for itself |
//! | 1 a fill finds its own entry | sent twice, it is told that it was fenced off, and is stored |
//! | 1 a claim without an answer is undone | it holds a lease that nobody knows of |
//! | 1 what was undone leaves a tombstone | the claim runs after its undo, and the same |
//! | 2 local fills carry the moment they are sure of | a purge in mid-build is undone by the fill |
//! | 2 which is sampled before the call is sent | a purge between the claim and its reply is missed |
//! | 2 what was fenced off goes nowhere | a lost lease stores in the local tier |
//! | 3 a purge detaches the flights under way | a newcomer joins one and gets what was purged |
//! | 3 so does a gap | the same, for as long as the gap lasts |
//! | 3 a purge strikes here again after the tier | what was read from the tier in between stays for its whole life |
//! | 3 and when its own event comes | the same, if the purge ran after its caller gave up |
//! | 4 a claim compares with the purge record | it finds what was purged |
//! | 4 a fill compares with it, though purges delete leases | the copy of a claim gets the lease back, and an old build stores |
//! | 4 a fill that is fenced frees its lease | the lease stays until it expires |
//! | 4 so do failure markers and memos | a failure from before the purge answers those who come after it |
//! | 5 a failure leaves the entry alone | nothing is left to stand in for failures |
//! | 5 a stale entry goes before a failure told by others | a waiter gets the failure though it could have an answer |
//! | 5 a memo needs a lease that was held to the end | newcomers get a failure beside a fresh entry |
//! | 5 what is stored clears the marker | everybody builds for themselves beside an entry |
//! | 5 a failure is told to those who wait elsewhere | they build in turn |
//! | 5 of that build, and no earlier one | a waiter gets the failure of a build that it never waited for |
//! | 6 nobody waits under a marker | a wave waits for what will not be shared |
//! | 6 one in each process claims all the same | nothing is ever stored again |
//! | 7 events only wake | a late one sets everybody free beside a build under way |
//! | 7 there are polls beneath | a lost event leaves a waiter for ever |
//! | 7 shorter than the memo's life | the failure is forgotten before the waiter asks |
//! | 8 leases expire | a crash blocks the key |
//! | 8 and are renewed | two builds, though nothing went wrong |
//! | 8 a fill needs its lease | a lost lease stores |
//! | 8 a release needs its lease | it frees another's: two builds |
//! | 9 the local tier is distrusted in a gap | what was purged meanwhile is served |
//! | 9 and dropped after it | the same, afterwards |
//! | 10 a call waits only so long | a lost reply leaves a waiter for ever |
//! | 11 stale and busy answers at once | a waiter waits beside an answer |
//! | 12 an older build does not replace a younger one | a late build undoes a newer one |
//! | 12 a failure does not speak beside a fresh entry | newcomers get it for as long as the memo lasts |
//! | 13 the proof of the key is compared | one gets the response of another key |
//!
//! What is left out: variants, bodies, Cluster, the floor under forgotten tags (a purge reaches too
//! much then, never too little), tombstones that expire before the late claim comes, and a copy of a
//! claim that runs after all is over: it takes a lease that only its time to live ends.

#![cfg(test)]

mod canon;
mod check;
mod events;
mod flights;
mod process;
mod requests;
mod right;
mod rules;
mod scenario;
mod search;
mod server;
mod state;
mod steps;
mod take;
mod wire;
mod world;
mod wrong;
