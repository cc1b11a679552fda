use http::{Method, header};
use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::{
    answer::{self, Wanted},
    purges::{Purge, Reach},
    status::Outcome,
};

const MINUTE: Duration = Duration::from_secs(60);

fn entry(lifetime: Lifetime, headers: HeaderMap, body: &'static str) -> Entry {
    let head = Head {
        status: StatusCode::OK,
        headers,
        variant: None,
        age: 5,
    };
    let origin = Origin {
        lifetime,
        tags: Box::from([Digest::of(b"tag")]),
        began: Moment::default(),
        built: Built::here(Instant::now()),
        build_time: Duration::from_millis(5),
    };
    Entry::new(head, Bytes::from(body), None, origin)
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_fresh_then_stale_then_worth_nothing() {
    let now = Instant::now();
    let entry = entry(
        Lifetime::starting(now, MINUTE, MINUTE, 2 * MINUTE),
        HeaderMap::new(),
        "",
    );

    let worth = [0, 59, 60, 119, 120, 179, 180]
        .map(|second| entry.worth(now + Duration::from_secs(second)));

    let expected = [
        Worth::Fresh,
        Worth::Fresh,
        Worth::StaleWhileRevalidate,
        Worth::StaleWhileRevalidate,
        Worth::StaleIfError,
        Worth::StaleIfError,
        Worth::Nothing,
    ];
    assert_eq!(worth, expected);
}

#[tokio::test(start_paused = true)]
async fn age_counts_from_the_age_at_reception_and_the_lifetime_runs_out() {
    let now = Instant::now();
    let entry = entry(
        Lifetime::starting(now, MINUTE, MINUTE, MINUTE),
        HeaderMap::new(),
        "",
    );

    advance(Duration::from_secs(70)).await;

    assert_eq!(entry.age(Instant::now()), 75);
    assert_eq!(entry.ttl(Instant::now()), -10);
}

#[tokio::test(start_paused = true)]
async fn no_lifetime_overflows() {
    let lifetime = Lifetime::starting(Instant::now(), Duration::MAX, Duration::MAX, Duration::MAX);

    assert!(lifetime.end() > lifetime.received);
}

#[tokio::test(start_paused = true)]
async fn a_purge_of_its_tag_makes_an_entry_invalid_for_good() {
    let purges = Purges::new(10);
    let entry = entry(
        Lifetime::starting(Instant::now(), MINUTE, MINUTE, MINUTE),
        HeaderMap::new(),
        "",
    );
    assert!(entry.is_valid(&purges));

    purges.purge(Purge::hard(Reach::Tag(Digest::of(b"another tag"))));
    assert!(entry.is_valid(&purges));
    purges.purge(Purge::hard(Reach::Tag(Digest::of(b"tag"))));
    purges.purge(Purge::hard(Reach::Tag(Digest::of(b"another tag"))));

    assert!(!entry.is_valid(&purges));
    assert!(
        entry.may_answer(Moment::default(), &purges),
        "who was there before"
    );
    assert!(!entry.may_answer(purges.now(), &purges));
}

#[tokio::test(start_paused = true)]
async fn fields_and_body_weigh() {
    let lifetime = Lifetime::starting(Instant::now(), MINUTE, MINUTE, MINUTE);
    let mut headers = HeaderMap::new();
    let empty = entry(lifetime, headers.clone(), "").weight();

    headers.insert(header::ETAG, http::HeaderValue::from_static("0123456789"));
    let with_field = entry(lifetime, headers.clone(), "").weight();
    let with_body = entry(lifetime, headers, "0123456789").weight();

    assert!(empty > 0 && with_field >= empty + 14);
    assert_eq!(with_body, with_field + 10);
}

#[test]
fn a_response_fits_requests_with_the_same_values_only() {
    let fields: Fields = Arc::from([header::ACCEPT]);
    let asks = |value: &'static str| {
        HeaderMap::from_iter([(header::ACCEPT, http::HeaderValue::from_static(value))])
    };
    let variant = Some(Variant::of(fields, &asks("a, b")));
    let head = Head {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        variant,
        age: 0,
    };

    assert!(head.fits(&asks("a,b")));
    assert!(!head.fits(&asks("b,a")));
    assert!(!head.fits(&HeaderMap::new()));
}

proptest! {
    /// What hits show is made when it changes, and is what holds at their moment.
    #[test]
    fn hits_say_at_any_time_what_is_true_then(
        windows in prop::array::uniform3(0_u64..5_000),
        times in prop::collection::vec(prop_oneof![0_u64..10_000, (0_u64..10).prop_map(|second| second * 1000)], 1..30),
        softened in prop::option::of(0_usize..30),
    ) {
        let received = Instant::now();
        let at = |millis| received + Duration::from_millis(millis);
        let [fresh, revalidate, error] = windows.map(Duration::from_millis);
        let lifetime = Lifetime::starting(received, fresh, revalidate, error);
        let stored = HeaderMap::from_iter([(header::ETAG, "\"x\"".parse().unwrap())]);
        let entry = Arc::new(entry(lifetime, stored, ""));
        let wanted = Wanted { method: &Method::GET, special: None };
        let mut present = Present::of(Arc::clone(&entry), received);

        for (number, time) in times.into_iter().enumerate() {
            if softened == Some(number) {
                entry.softened.get_or_init(|| at(time));
            }
            for now in [at(time), at(time) + Duration::from_nanos(1)] {
                if !present.holds(now) {
                    present = Present::of(Arc::clone(&entry), now);
                    prop_assert!(present.holds(now) || entry.is_over(now));
                }
                let hit = answer::hit::<String>(&present, wanted);
                let whole = answer::whole::<String>(&present);
                let anew = answer::from_entry::<String>(&entry, wanted, now, Outcome::hit(entry.ttl(now)));

                prop_assert_eq!(present.worth, entry.worth(now));
                prop_assert_eq!(hit.headers(), anew.headers());
                prop_assert_eq!(whole.headers(), anew.headers());
                prop_assert_eq!(whole.status(), anew.status());
            }
        }
    }
}
