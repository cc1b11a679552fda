//! Tokens of one's own and metadata.

use std::time::Duration;

use tower_stampede::lock::{
    Attempt, ErrorKind, MAX_METADATA, Reentry, Released, Remaining, Token, Who,
};

use crate::lock_ground::{Fault, MINUTE, is_busy, on_both, take};

on_both! {
    async fn token_and_metadata_can_be_read_by_everyone(ground: Ground) {
        let _guard = take(&ground.locks.lock("job").token("foo").metadata("bar")).await;

        let holder = ground.elsewhere.lock("job").holder().await.unwrap().unwrap();

        assert_eq!(holder.token(), &Token::new("foo"));
        assert_eq!(holder.metadata(), "bar");
        assert!(holder.remaining().duration().unwrap() <= MINUTE);
    }

    async fn the_same_token_takes_its_lock_again_and_replaces_everything(ground: Ground) {
        let lock = ground.locks.lock("job").token("foo");
        let first = take(&lock.clone().metadata("bar").ttl(Duration::from_secs(5))).await;

        let second = take(&lock.clone().metadata("baz").ttl(MINUTE)).await;

        let holder = ground.elsewhere.lock("job").holder().await.unwrap().unwrap();
        assert_eq!(holder.metadata(), "baz");
        assert!(holder.remaining().duration().unwrap() > Duration::from_secs(50));
        assert_eq!(first.release().await.unwrap(), Released::HeldByAnother);
        assert_eq!(second.release().await.unwrap(), Released::Released);
    }

    async fn the_first_guard_is_no_holder_even_if_the_metadata_is_the_same(ground: Ground) {
        let lock = ground.locks.lock("job").token("foo");
        let first = take(&lock).await;
        let _second = take(&lock).await;

        assert!(!first.is_still_held().await.unwrap());
        assert_eq!(first.extend(MINUTE).await.unwrap_err().kind(), ErrorKind::NotHeld);
        assert_eq!(first.release().await.unwrap(), Released::HeldByAnother);
    }

    async fn no_token_or_another_is_refused(ground: Ground) {
        let _guard = take(&ground.locks.lock("job").token("foo").metadata("bar")).await;

        assert!(is_busy(&ground.elsewhere.lock("job")).await);
        assert!(is_busy(&ground.elsewhere.lock("job").token("other")).await);
    }

    async fn a_token_that_begins_like_the_holders_is_another(ground: Ground) {
        let long = take(&ground.locks.lock("job").token("foobar")).await;

        for token in ["foo", "f", "foobar:", "#6:foobar:", "foobarbaz"] {
            assert!(is_busy(&ground.elsewhere.lock("job").token(token)).await, "{token}");
            let released = ground.elsewhere.lock("job").release(&Token::new(token)).await.unwrap();
            assert_eq!(released, Released::HeldByAnother);
        }
        assert!(long.release().await.unwrap().was_held());
        let _short = take(&ground.locks.lock("job").token("foo")).await;
        assert!(is_busy(&ground.elsewhere.lock("job").token("foobar")).await);
    }

    async fn tokens_and_metadata_may_be_any_bytes(ground: Ground) {
        for token in [&b"\x00\xff:#\r\n"[..], "\u{1f512}".as_bytes(), b"#5:x", b"123:"] {
            let guard = take(&ground.locks.lock("job").token(token).metadata(token.to_vec())).await;

            let holder = ground.elsewhere.lock("job").holder().await.unwrap().unwrap();
            assert_eq!(holder.token().as_bytes(), token);
            assert_eq!(&holder.metadata()[..], token);
            assert!(is_busy(&ground.elsewhere.lock("job")).await);
            assert!(guard.release().await.unwrap().was_held());
        }
    }

    async fn an_empty_token_means_a_random_one(ground: Ground) {
        let guard = take(&ground.locks.lock("job").token("")).await;

        assert_eq!(guard.token().as_bytes().len(), 32);
        assert!(is_busy(&ground.elsewhere.lock("job").token("")).await);
    }

    async fn a_request_can_ask_to_be_told_that_it_holds_the_lock(ground: Ground) {
        let lock = ground.locks.lock("job").token("me").reentry(Reentry::Report).ttl(MINUTE);
        let guard = take(&lock).await;

        let again = lock.try_acquire().await.unwrap();
        let Attempt::AlreadyHeld(Remaining::Millis(left)) = again else {
            panic!("not told: {again:?}");
        };

        assert!(left > 50_000 && left <= 60_000);
        assert!(guard.is_still_held().await.unwrap());
        assert!(is_busy(&ground.elsewhere.lock("job").token("other").reentry(Reentry::Report)).await);
        let error = lock.wait(MINUTE).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld);
    }

    async fn an_attempt_that_is_sent_twice_is_granted_with_the_same_number(ground: Ground) {
        for request in [
            ground.locks.lock("a").fencing(),
            ground.locks.lock("b").token("me").reentry(Reentry::Report).fencing(),
        ] {
            let before = take(&request.clone()).await;
            let number = before.fencing_number().unwrap();
            assert!(before.release().await.unwrap().was_held());

            ground.spy.fail_acquires([Fault::Twice]);
            let guard = take(&request).await;

            assert!(guard.is_still_held().await.unwrap());
            assert!(guard.fencing_number().unwrap() > number);
        }
    }

    async fn limits_of_tokens_and_metadata_are_checked_before_anything_is_sent(ground: Ground) {
        let lock = ground.locks.lock("job");
        let invalid = [
            lock.clone().token("*"),
            lock.clone().token([b'x'; 257]),
            lock.clone().metadata(vec![0; MAX_METADATA + 1]),
            ground.locks.read("job").token(""),
            ground.locks.write("job").token(""),
        ];

        for request in invalid {
            let error = request.acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        for error in [
            lock.release(&Token::new("")).await.map(drop).unwrap_err(),
            lock.adopt(&Token::new("")).await.map(drop).unwrap_err(),
            lock.exists(Who::Token(Token::new(""))).await.map(drop).unwrap_err(),
            lock.exists(Who::Token(Token::new("*"))).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(ground.spy.acquires(), 0);
        assert!(!is_busy(&lock.token([0; 256]).metadata(vec![0; MAX_METADATA])).await);
    }
}
