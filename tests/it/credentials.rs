//! Who may have a response that was made for somebody else.

use std::time::Duration;

use http::header;
use tokio::time::sleep;
use tower_stampede::{Cache, Keyed};

use crate::support::{
    client::{ask, behind, builds, get, herd, minute, numbered, same, with},
    origin::{Origin, failure, fresh, no_store, reply},
};

// ===== what may be shared =====

#[tokio::test(start_paused = true)]
async fn a_response_with_set_cookie_is_never_replayed() {
    let origin = Origin::new(|call| async move {
        let cookie = format!("sid={}", call.number);
        reply(
            &[
                ("cache-control", "public, max-age=60"),
                ("set-cookie", &cookie),
            ],
            "hello",
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let one = ask(&service, get("/")).await;
    let other = ask(&service, get("/")).await;

    assert_eq!(one.header("set-cookie"), "sid=1");
    assert_eq!(other.header("set-cookie"), "sid=2");
}

#[tokio::test(start_paused = true)]
async fn waiters_never_get_the_starters_cookie() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        let cookie = format!("sid={}", call.number);
        reply(
            &[
                ("cache-control", "public, max-age=60"),
                ("set-cookie", &cookie),
            ],
            "hello",
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let mut cookies: Vec<_> = same(&service, 20, "/")
        .answers()
        .await
        .iter()
        .map(|answer| answer.header("set-cookie").to_owned())
        .collect();

    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_a_cookie_is_shared_without_it() {
    let origin = Origin::new(|_| async {
        sleep(Duration::from_millis(100)).await;
        let mut response = failure(500, "for one pair of eyes");
        response
            .headers_mut()
            .insert("set-cookie", "sid=1".parse().unwrap());
        response
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let answers = same(&service, 20, "/").answers().await;

    assert!(answers.iter().all(|answer| answer.status == 500));
    let with_cookie = answers
        .iter()
        .filter(|answer| !answer.header("set-cookie").is_empty());
    assert_eq!(with_cookie.count(), 1);
    let personal = answers
        .iter()
        .filter(|answer| answer.text() == "for one pair of eyes");
    assert_eq!(personal.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_varies_is_not_shown_to_other_variants() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        let user = call.header("x-user");
        let mut response = failure(500, format!("sorry, {user}"));
        response
            .headers_mut()
            .insert("vary", "x-user".parse().unwrap());
        response
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let requests = ["ann", "ann", "bob"].map(|user| with("/", &[("x-user", user)]));
    let answers = herd(&service, requests).answers().await;

    assert_eq!(answers[0].text(), "sorry, ann");
    assert_eq!(answers[1].text(), "sorry, ann");
    assert_eq!(answers[2].status, 500);
    assert!(!answers[2].text().contains("ann"), "{}", answers[2].text());
}

#[tokio::test(start_paused = true)]
async fn a_policy_with_a_nonce_is_not_stored() {
    let origin = Origin::new(|call| async move {
        let policy = format!("script-src 'nonce-{}'", call.number);
        reply(
            &[
                ("cache-control", "max-age=60"),
                ("content-security-policy", &policy),
            ],
            "page",
        )
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    ask(&service, get("/")).await;
    let second = ask(&service, get("/")).await;

    assert_eq!(
        second.header("content-security-policy"),
        "script-src 'nonce-2'"
    );
}

// ===== credentials =====

#[tokio::test(start_paused = true)]
async fn requests_with_credentials_bypass() {
    for (name, value, detail) in [
        ("authorization", "Bearer a", "authorization"),
        ("cookie", "session=a", "cookie"),
    ] {
        let (service, origin) = numbered(|layer| layer);

        let first = ask(&service, with("/dashboard", &[(name, value)])).await;
        let anonymous = ask(&service, get("/dashboard")).await;
        let again = ask(&service, with("/dashboard", &[(name, value)])).await;

        assert_eq!(
            first.status_line(),
            format!("stampede; fwd=bypass; detail={detail}")
        );
        assert_eq!(anonymous.text(), "build 2");
        assert_eq!(again.text(), "build 3", "nor is it looked up");
        assert_eq!(origin.builds(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_credentials_are_not_coalesced() {
    let cache = Cache::in_memory();
    let origin = Origin::new(|_| async {
        sleep(Duration::from_millis(100)).await;
        fresh("page")
    });
    let service = behind(&minute(&cache), &origin);

    herd(
        &service,
        (0..10).map(|_| with("/", &[("cookie", "session=a")])),
    )
    .answers()
    .await;

    assert_eq!(origin.peak(), 10);
}

#[tokio::test(start_paused = true)]
async fn with_authorization_allowed_the_table_of_the_rfc_decides() {
    for (response, stored) in [
        ("max-age=60", false),
        ("max-age=60, public", true),
        ("s-maxage=60", true),
        ("max-age=60, must-revalidate", true),
        ("max-age=60, private", false),
    ] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |call| async move {
            reply(
                &[("cache-control", response)],
                format!("build {}", call.number),
            )
        });
        let service = behind(&minute(&cache).allow_authorization(), &origin);
        let request = || with("/", &[("authorization", "Bearer a")]);

        ask(&service, request()).await;
        let second = ask(&service, request()).await;

        assert_eq!(second.status_line().contains("hit"), stored, "{response}");
        assert_eq!(origin.builds(), if stored { 1 } else { 2 }, "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_open_to_credentials_answers_everybody_and_any_other_one_its_own_kind() {
    let (anonymous, user) = (&[][..], &[("authorization", "Bearer a")][..]);
    for (response, open) in [
        ("max-age=60", false),
        ("max-age=60, public", true),
        ("s-maxage=60", true),
        ("max-age=60, must-revalidate", true),
    ] {
        for (first, second, shared) in [
            (anonymous, anonymous, true),
            (anonymous, user, open),
            (user, anonymous, open),
        ] {
            let cache = Cache::in_memory();
            let origin = Origin::new(move |call| async move {
                reply(
                    &[("cache-control", response)],
                    format!("for {:?}", call.header("authorization")),
                )
            });
            let service = behind(&minute(&cache).allow_authorization(), &origin);

            ask(&service, with("/", first)).await;
            let answer = ask(&service, with("/", second)).await;

            let builds = if shared { 1 } else { 2 };
            assert_eq!(origin.builds(), builds, "{response} {first:?} {second:?}");
            if first == anonymous && !shared {
                assert_eq!(answer.text(), "for \"Bearer a\"");
                assert_eq!(
                    answer.status_line(),
                    "stampede; fwd=request; detail=authorization"
                );
                let again = ask(&service, with("/", first)).await;
                assert!(again.status_line().contains("hit"), "it is still there");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_has_credentials_waits_for_no_anonymous_build_that_is_not_open_to_them() {
    for (response, builds) in [("max-age=60", 6), ("max-age=60, public", 1)] {
        let cache = Cache::in_memory();
        let origin = Origin::new(move |call| async move {
            sleep(Duration::from_millis(100)).await;
            reply(&[("cache-control", response)], call.header("authorization"))
        });
        let service = behind(&minute(&cache).allow_authorization(), &origin);
        let users: Vec<_> = (0..5).map(|user| format!("Bearer {user}")).collect();

        let anonymous = (0..5).map(|_| get("/"));
        let known = users
            .iter()
            .map(|user| with("/", &[("authorization", user)]));
        let answers = herd(&service, anonymous.chain(known)).answers().await;

        assert_eq!(origin.builds(), builds, "{response}");
        for (at, answer) in answers.iter().enumerate() {
            let own = at.checked_sub(5).map_or("", |user| &users[user]);
            let expected = if builds == 1 { "" } else { own };
            assert_eq!(answer.text(), expected, "{response} {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_page_for_nobody_does_not_stand_in_for_somebodys() {
    let origin = Origin::new(|call| async move {
        match call.number {
            1 => reply(&[("cache-control", "max-age=1, stale-if-error=60")], "page"),
            _ => failure(503, "down"),
        }
    });
    let service = behind(&minute(&Cache::in_memory()).allow_authorization(), &origin);
    ask(&service, get("/")).await;
    sleep(Duration::from_secs(2)).await;

    let somebody = ask(&service, with("/", &[("authorization", "Bearer a")])).await;
    sleep(Duration::from_secs(2)).await;
    let nobody = ask(&service, get("/")).await;

    assert_eq!((somebody.status.as_u16(), somebody.text()), (503, "down"));
    assert_eq!((nobody.status.as_u16(), nobody.text()), (200, "page"));
}

#[tokio::test(start_paused = true)]
async fn who_is_not_allowed_in_gets_its_own_refusal() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        match call.header("authorization").as_str() {
            "" => failure(401, "who?"),
            _ => fresh("secret"),
        }
    });
    let service = behind(&minute(&Cache::in_memory()), &origin);

    let admin = ask(&service, with("/", &[("authorization", "Bearer admin")])).await;
    let both = herd(
        &service,
        [with("/", &[("authorization", "Bearer admin")]), get("/")],
    )
    .answers()
    .await;

    assert_eq!(admin.text(), "secret");
    assert_eq!((both[0].text(), both[1].text()), ("secret", "who?"));
    assert_eq!(both[1].status, 401);
}

#[tokio::test(start_paused = true)]
async fn an_identity_in_the_key_admits_credentials_and_keeps_them_apart() {
    let (service, origin) = numbered(|layer| {
        layer.key_with(|request, key| match request.headers.get("authorization") {
            Some(token) => {
                key.part(token.as_bytes());
                Keyed::Credentials
            }
            None => Keyed::Yes,
        })
    });
    let as_user = |user| [("authorization", user)];

    let (ann, bob) = (as_user("ann"), as_user("bob"));
    let count = builds(
        &service,
        &origin,
        [
            ("/", &ann[..]),
            ("/", &bob),
            ("/", &ann),
            ("/", &bob),
            ("/", &[]),
        ],
    )
    .await;

    assert_eq!(count, 3);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_keyed_as_headers_are_admitted() {
    for name in [header::AUTHORIZATION, header::COOKIE] {
        let (service, origin) = numbered(|layer| layer.vary_by_header(name.clone()));
        let as_user = |user| [(name.as_str(), user)];

        let (ann, bob) = (as_user("ann=1"), as_user("bob=1"));
        let count = builds(
            &service,
            &origin,
            [("/", &ann[..]), ("/", &bob), ("/", &ann), ("/", &bob)],
        )
        .await;

        assert_eq!(count, 2, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_keyed_cookie_admits_requests_and_the_others_never_reach_the_build() {
    let origin = Origin::new(|call| async move { reply(&[], call.header("cookie")) });
    let service = behind(
        &minute(&Cache::in_memory()).vary_by_cookie("theme"),
        &origin,
    );

    let dark = ask(&service, with("/", &[("cookie", "id=1; theme=dark")])).await;
    let light = ask(&service, with("/", &[("cookie", "theme=light; id=2")])).await;
    let other = ask(&service, with("/", &[("cookie", "theme=dark; id=3")])).await;
    let none = ask(&service, get("/")).await;

    assert_eq!((dark.text(), light.text()), ("theme=dark", "theme=light"));
    assert_eq!((other.text(), none.text()), ("theme=dark", ""));
    assert_eq!(origin.builds(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_varies_by_cookie_varies_by_the_cookies_that_its_build_saw() {
    let origin =
        Origin::new(|call| async move { reply(&[("vary", "cookie")], call.header("cookie")) });
    let service = behind(
        &minute(&Cache::in_memory()).vary_by_cookie("theme"),
        &origin,
    );

    for visitor in 1..=20 {
        for theme in ["dark", "light"] {
            let cookies = format!("_ga={visitor}; theme={theme}");
            let answer = ask(&service, with("/", &[("cookie", &cookies)])).await;
            assert_eq!(answer.text(), format!("theme={theme}"));
        }
    }

    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn other_cookies_reach_the_inner_service_by_no_way() {
    let origin = Origin::new(|call| async move {
        sleep(Duration::from_millis(100)).await;
        no_store(call.header("cookie"))
    });
    let service = behind(
        &minute(&Cache::in_memory()).vary_by_cookie("theme"),
        &origin,
    );
    let visitors: Vec<_> = (0..10).map(|id| format!("id={id}; theme=dark")).collect();

    let requests = visitors
        .iter()
        .map(|cookies| with("/", &[("cookie", cookies)]));
    let answers = herd(&service, requests).answers().await;

    assert_eq!(origin.builds(), 10);
    assert!(answers.iter().all(|answer| answer.text() == "theme=dark"));
}

#[tokio::test(start_paused = true)]
async fn where_the_cookies_are_not_in_the_key_a_response_varies_by_all_of_them() {
    let origin =
        Origin::new(|call| async move { reply(&[("vary", "cookie")], call.header("cookie")) });
    let layer = minute(&Cache::in_memory())
        .vary_by_cookie("theme")
        .replace_key_with(|request, key| {
            key.part(request.uri.path());
            Keyed::Yes
        });
    let service = behind(&layer, &origin);

    for theme in ["dark", "light", "dark"] {
        let cookies = format!("theme={theme}");
        let answer = ask(&service, with("/", &[("cookie", &cookies)])).await;
        assert_eq!(answer.text(), cookies);
    }

    assert_eq!(origin.builds(), 2);
}

#[tokio::test(start_paused = true)]
async fn ignored_cookies_are_left_on_the_request() {
    let origin = Origin::new(|call| async move { reply(&[], call.header("cookie")) });
    let service = behind(
        &minute(&Cache::in_memory()).allow_ignored_cookies(),
        &origin,
    );

    let first = ask(&service, with("/", &[("cookie", "id=1")])).await;
    let second = ask(&service, with("/", &[("cookie", "id=2")])).await;

    assert_eq!((first.text(), second.text()), ("id=1", "id=1"));
}
