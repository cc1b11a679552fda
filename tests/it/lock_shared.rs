//! Read/write locks: many readers or one writer.

use std::time::Duration;

use tower_stampede::lock::{
    Acquire, Attempt, ErrorKind, Mode, Obstacle, Released, Remaining, Token, Who, backend::Grant,
};

use crate::lock_ground::{
    Fault, Ground, MINUTE, SHORT, eventually, is_busy, ms, on_both, spawn, take,
};

async fn obstacle(request: &Acquire) -> Obstacle {
    match request.try_acquire().await.unwrap() {
        Attempt::Busy(busy) => busy.obstacle(),
        other => panic!("not busy: {other:?}"),
    }
}

fn reader(ground: &Ground, token: &str) -> Acquire {
    ground.locks.read("r").token(token)
}

fn writer(ground: &Ground, token: &str) -> Acquire {
    ground.elsewhere.write("r").token(token)
}

on_both! {
    async fn many_read_together_and_keep_a_writer_out(ground: Ground) {
        let one = take(&ground.locks.read("r")).await;
        let two = take(&ground.elsewhere.read("r")).await;

        assert!(is_busy(&ground.elsewhere.write("r")).await);
        assert_eq!(one.release().await.unwrap(), Released::Released);
        assert!(is_busy(&ground.elsewhere.write("r")).await);
        assert_eq!(two.release().await.unwrap(), Released::Released);
        assert!(!is_busy(&ground.elsewhere.write("r")).await);
    }

    async fn a_writer_keeps_readers_and_writers_out_even_with_its_own_token(ground: Ground) {
        let _writer = take(&writer(&ground, "w")).await;

        assert!(is_busy(&ground.locks.read("r")).await);
        assert!(is_busy(&ground.locks.write("r")).await);
        assert!(is_busy(&reader(&ground, "w")).await);
        assert!(is_busy(&writer(&ground, "w")).await);
    }

    async fn a_second_read_by_one_token_is_refused_at_once_even_if_it_would_wait(ground: Ground) {
        let _reader = take(&reader(&ground, "a").ttl(MINUTE)).await;

        let Attempt::AlreadyHeld(Remaining::Millis(left)) = reader(&ground, "a").try_acquire().await.unwrap() else {
            panic!("not refused");
        };
        let before = tokio::time::Instant::now();
        let error = reader(&ground, "a").wait(MINUTE).acquire().await.unwrap_err();

        assert!(left > 50_000);
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld);
        assert!(before.elapsed() < Duration::from_secs(10));
    }

    async fn the_only_reader_is_promoted_and_new_readers_are_refused(ground: Ground) {
        let read = take(&reader(&ground, "a")).await;

        let write = take(&writer(&ground, "a")).await;

        assert_eq!(write.mode(), Mode::Write);
        assert!(is_busy(&ground.locks.read("r")).await);
        assert!(!read.is_still_held().await.unwrap(), "the read became the write");
        assert_eq!(read.release().await.unwrap(), Released::HeldByAnother);
        assert_eq!(write.release().await.unwrap(), Released::Released);
        assert!(!ground.locks.read("r").is_held().await.unwrap());
    }

    async fn a_promotion_waits_for_the_other_readers(ground: Ground) {
        let _own = take(&reader(&ground, "a")).await;
        let other = take(&reader(&ground, "b")).await;
        assert_eq!(obstacle(&writer(&ground, "a")).await, Obstacle::OtherReaders);
        assert_eq!(obstacle(&writer(&ground, "c")).await, Obstacle::Holder);

        let waiting = spawn({
            let request = writer(&ground, "a").wait(MINUTE);
            async move { request.acquire().await }
        });
        tokio::task::yield_now().await;
        assert_eq!(other.release().await.unwrap(), Released::Released);

        assert_eq!(waiting.await.unwrap().unwrap().mode(), Mode::Write);
    }

    async fn a_promotion_is_not_stuck_behind_writers_that_wait_for_it(ground: Ground) {
        let own = take(&reader(&ground, "a")).await;
        let other = take(&reader(&ground, "b")).await;
        let behind = spawn({
            let request = ground.elsewhere.write("r").wait(MINUTE);
            async move { request.acquire().await.unwrap().release().await.unwrap() }
        });
        let promoted = spawn({
            let request = writer(&ground, "a").wait(MINUTE);
            async move { request.acquire().await.unwrap().release().await.unwrap() }
        });
        tokio::time::sleep(ms(20)).await;

        assert_eq!(other.release().await.unwrap(), Released::Released);

        assert_eq!(promoted.await.unwrap(), Released::Released);
        assert_eq!(behind.await.unwrap(), Released::Released);
        assert!(!own.is_still_held().await.unwrap());
    }

    async fn a_foreign_token_releases_nothing(ground: Ground) {
        let read = take(&reader(&ground, "a")).await;
        assert_eq!(ground.locks.read("r").release(&Token::new("b")).await.unwrap(), Released::Expired);
        assert!(read.is_still_held().await.unwrap());
        assert!(read.release().await.unwrap().was_held());

        let write = take(&writer(&ground, "a")).await;
        assert_eq!(ground.locks.write("r").release(&Token::new("b")).await.unwrap(), Released::HeldByAnother);
        assert!(write.is_still_held().await.unwrap());
    }

    async fn a_failed_attempt_leaves_the_members_as_they_are(ground: Ground) {
        let one = take(&reader(&ground, "a").ttl(MINUTE)).await;
        let two = take(&reader(&ground, "b").persistent()).await;

        assert!(is_busy(&writer(&ground, "c").ttl(ms(1))).await);
        assert_eq!(obstacle(&writer(&ground, "a").ttl(ms(1))).await, Obstacle::OtherReaders);

        assert!(one.remaining().await.unwrap().unwrap().duration().unwrap() > Duration::from_secs(50));
        assert_eq!(two.remaining().await.unwrap(), Some(Remaining::Persistent));
        assert_eq!(ground.locks.read("r").holders().await.unwrap().len(), 2);
    }

    async fn a_writer_comes_in_when_the_longest_reader_ends(ground: Ground) {
        let _short = take(&reader(&ground, "a").ttl(ms(400))).await;
        let _long = take(&reader(&ground, "b").ttl(ms(1500))).await;
        let before = tokio::time::Instant::now();

        let write = ground.elsewhere.write("r").wait(MINUTE).acquire().await.unwrap();

        assert!(before.elapsed() >= ms(1000) && write.is_valid());
    }

    async fn a_dead_reader_leaves_by_itself(ground: Ground) {
        let dead = take(&reader(&ground, "a").ttl(SHORT)).await;
        let alive = take(&reader(&ground, "b").ttl(MINUTE)).await;

        ground.outlive(SHORT).await;

        let holders = ground.locks.read("r").holders().await.unwrap();
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0].token(), alive.token());
        assert!(!dead.is_still_held().await.unwrap());
        assert!(is_busy(&writer(&ground, "c")).await);
        assert!(!is_busy(&reader(&ground, "a")).await);
    }

    async fn each_reader_extends_for_itself(ground: Ground) {
        let one = take(&reader(&ground, "a").ttl(MINUTE)).await;
        let two = take(&reader(&ground, "b").ttl(MINUTE)).await;

        one.extend(Duration::from_secs(10)).await.unwrap();
        two.persist().await.unwrap();
        assert_eq!(two.remaining().await.unwrap(), Some(Remaining::Persistent));
        two.extend(Duration::from_secs(30)).await.unwrap();
        two.extend_by(Duration::from_secs(5)).await.unwrap();

        let left = |remaining: Option<Remaining>| remaining.unwrap().duration().unwrap();
        assert!(left(one.remaining().await.unwrap()) <= Duration::from_secs(10));
        let two = left(two.remaining().await.unwrap());
        assert!(two > Duration::from_secs(30) && two <= Duration::from_secs(35));
    }

    async fn an_expired_member_is_not_revived(ground: Ground) {
        let dead = take(&reader(&ground, "a").ttl(SHORT)).await;
        ground.outlive(SHORT).await;

        assert_eq!(dead.extend(MINUTE).await.unwrap_err().kind(), ErrorKind::NotHeld);
        assert!(!ground.locks.read("r").is_held().await.unwrap());
    }

    async fn a_preferred_writer_that_waits_keeps_new_readers_out_until_it_is_done(ground: Ground) {
        let early = take(&reader(&ground, "a")).await;
        let waiting = spawn({
            let request = ground.elsewhere.write("r").prefer_writer().wait(MINUTE);
            async move { request.acquire().await.unwrap() }
        });
        let late = ground.locks.read("r");
        eventually(async || is_busy(&late).await).await;
        assert_eq!(obstacle(&late).await, Obstacle::WaitingWriter);

        assert!(early.release().await.unwrap().was_held());
        let write = waiting.await.unwrap();
        assert_eq!(obstacle(&late).await, Obstacle::Holder);
        assert!(write.release().await.unwrap().was_held());

        assert!(!is_busy(&late).await);
    }

    async fn a_preferred_writer_that_gives_up_lets_readers_in_at_once(ground: Ground) {
        let _early = take(&reader(&ground, "a")).await;
        let writing = ground.locks.write("r").prefer_writer();

        let error = writing.wait(ms(50)).acquire().await.unwrap_err();

        assert!(error.busy().unwrap().deadline_passed());
        eventually(async || ground.spy.withdrawals() == 1).await;
        assert!(!is_busy(&ground.elsewhere.read("r")).await);
    }

    async fn without_preference_a_stream_of_readers_is_let_in(ground: Ground) {
        let _early = take(&reader(&ground, "a")).await;
        let waiting = spawn({
            let request = ground.elsewhere.write("r").wait(MINUTE);
            async move { request.acquire().await }
        });
        tokio::time::sleep(ms(20)).await;

        assert!(!is_busy(&ground.locks.read("r")).await);
        assert!(ground.locks.read("r").wait(MINUTE).acquire().await.is_ok());
        waiting.abort();
    }

    async fn force_release_removes_all_readers(ground: Ground) {
        let one = take(&reader(&ground, "a")).await;
        let two = take(&reader(&ground, "b").persistent()).await;

        assert!(ground.elsewhere.write("r").force_release().await.unwrap());
        assert!(!ground.elsewhere.write("r").force_release().await.unwrap());

        assert!(!one.is_still_held().await.unwrap() && !two.is_still_held().await.unwrap());
        assert!(!is_busy(&ground.elsewhere.write("r")).await);
    }

    async fn a_release_lets_all_waiting_readers_in_one_after_the_other(ground: Ground) {
        let write = take(&writer(&ground, "w")).await;
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let request = ground.locks.read("r").wait(MINUTE);
            readers.spawn(async move { request.acquire().await.unwrap() });
        }
        tokio::time::sleep(ms(30)).await;

        assert!(write.release().await.unwrap().was_held());

        assert_eq!(readers.join_all().await.len(), 10);
    }

    async fn an_attempt_that_is_sent_twice_is_granted_twice_the_same(ground: Ground) {
        for request in [reader(&ground, "a"), reader(&ground, "b"), ground.locks.write("other").token("c")] {
            ground.spy.fail_acquires([Fault::Twice]);
            take(&request).await.keep();
        }
        assert_eq!(ground.locks.read("r").holders().await.unwrap().len(), 2);
    }

    async fn a_promotion_of_unknown_outcome_leaves_the_reader_reading(ground: Ground) {
        let read = take(&reader(&ground, "a").ttl(MINUTE)).await;
        ground.spy.fail_acquires([Fault::LoseReply]);

        let error = ground.locks.write("r").token("a").try_acquire().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        eventually(async || ground.spy.withdrawals() == 1).await;
        assert!(read.is_still_held().await.unwrap());
        assert!(!is_busy(&reader(&ground, "b")).await);
        assert!(read.remaining().await.unwrap().unwrap().duration().unwrap() > Duration::from_secs(50));
    }

    async fn members_carry_metadata_and_writers_fencing_numbers(ground: Ground) {
        let read = take(&reader(&ground, "a").metadata("host 1")).await;

        let holders = ground.elsewhere.read("r").holders().await.unwrap();
        assert_eq!(holders[0].metadata(), "host 1");
        assert_eq!(holders[0].mode(), Mode::Read);
        assert!(read.release().await.unwrap().was_held());

        let one = take(&writer(&ground, "w").fencing()).await.fencing_number().unwrap();
        eventually(async || !ground.locks.read("r").is_held().await.unwrap()).await;
        let two = take(&writer(&ground, "w").fencing()).await.fencing_number().unwrap();
        assert!(two > one);
    }

    async fn tokens_and_metadata_of_members_may_be_any_bytes(ground: Ground) {
        for token in [&b"\x00\xff:#\r\n"[..], "\u{1f512}".as_bytes(), b"p", b"m", b"ma"] {
            let read = take(&ground.locks.read("r").token(token).metadata(token.to_vec())).await;
            let write = take(&ground.elsewhere.write("r").token(token).metadata(token.to_vec())).await;

            let holder = ground.locks.read("r").holder().await.unwrap().unwrap();
            assert_eq!((holder.token().as_bytes(), &holder.metadata()[..]), (token, token));
            assert_eq!(holder.mode(), Mode::Write);
            assert!(!read.is_still_held().await.unwrap());

            // Taken back, it is the reader again that it was.
            assert!(write.release().await.unwrap().was_held());
            let read = take(&ground.locks.read("r").token(token).metadata(token.to_vec())).await;
            let before = ground.spy.withdrawals();
            ground.spy.fail_acquires([Fault::LoseReply]);
            assert!(ground.locks.write("r").token(token).try_acquire().await.is_err());
            eventually(async || ground.spy.withdrawals() > before).await;
            assert!(read.is_still_held().await.unwrap());
            assert!(read.release().await.unwrap().was_held());
        }
    }

    async fn a_fencing_number_is_never_given_twice_even_if_an_attempt_comes_again_later(ground: Ground) {
        ground.spy.fail_acquires([Fault::Repeat]);
        let one = take(&ground.locks.read("r").fencing()).await;
        let two = take(&ground.elsewhere.read("r").fencing()).await;

        let again = ground.spy.arrive().await.unwrap().unwrap();

        let Grant::Granted { fence: Some(number) } = again else {
            panic!("it holds the lock: {again:?}");
        };
        assert!(one.fencing_number() < two.fencing_number());
        assert!(number == one.fencing_number().unwrap() || number > two.fencing_number().unwrap());
        assert!(one.is_still_held().await.unwrap());
        assert_eq!(ground.locks.read("r").holders().await.unwrap().len(), 2);
    }

    async fn another_process_adopts_and_releases_a_member(ground: Ground) {
        let read = take(&reader(&ground, "a")).await;

        let adopted = ground.elsewhere.read("r").adopt(&Token::new("a")).await.unwrap().unwrap();
        assert_eq!(adopted.mode(), Mode::Read);
        assert!(adopted.release().await.unwrap().was_held());

        assert!(!read.is_still_held().await.unwrap());
        assert!(!ground.locks.read("r").exists(Who::Token(Token::new("a"))).await.unwrap());
    }

    async fn a_plain_lock_of_the_same_name_is_another_lock(ground: Ground) {
        let _plain = take(&ground.locks.lock("r")).await;

        assert!(!is_busy(&ground.locks.write("r")).await);
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn the_keys_of_a_read_write_lock_live_as_long_as_the_longest_member() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let members = || {
        let keys: Vec<String> = server.command(&["KEYS", "*:~rw"]);
        keys.into_iter().next()
    };
    let ttl = || server.command::<i64>(&["PTTL", &members().unwrap()]);

    let long = take(&reader(&ground, "a").ttl(MINUTE)).await;
    let _short = take(&reader(&ground, "b").ttl(Duration::from_secs(10))).await;
    assert!(ttl() > 50_000 && ttl() <= 60_000);

    assert!(long.release().await.unwrap().was_held());
    assert!(ttl() > 5_000 && ttl() <= 10_000);

    let persistent = take(&reader(&ground, "c").persistent()).await;
    assert_eq!(ttl(), -1);

    assert!(persistent.release().await.unwrap().was_held());
    assert!(ttl() > 5_000 && ttl() <= 10_000);
    assert!(ground.locks.read("r").force_release().await.unwrap());
    assert_eq!(members(), None);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn members_whose_notes_the_server_dropped_exclude_everyone_until_they_end() {
    let ground = Ground::on_redis();
    let server = ground.server.as_ref().unwrap();
    let lock = ground.locks.read("r");
    let guard = take(&reader(&ground, "a").ttl(MINUTE)).await;
    let notes: Vec<String> = server.command(&["KEYS", "*:~rn"]);
    server.command::<()>(&["DEL", &notes[0]]);

    assert!(is_busy(&lock).await);
    assert!(is_busy(&ground.elsewhere.write("r")).await);
    let holders = lock.holders().await.unwrap();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].token(), guard.token());
    assert_eq!(guard.release().await.unwrap(), Released::HeldByAnother);
    assert!(lock.release(&Token::new("a")).await.unwrap().was_held());
    assert!(!is_busy(&lock).await);
}
