use http::header::{ACCEPT, ACCEPT_LANGUAGE};
use proptest::prelude::*;

use super::*;

fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, line) in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

fn of(lines: &[&str]) -> Vary {
    let lines: Vec<_> = lines.iter().map(|line| (VARY, *line)).collect();
    Vary::of_response(&headers(&lines))
}

fn variant(fields: &[HeaderName], request: &HeaderMap, matching: Matching) -> Vec<u8> {
    let mut out = Vec::new();
    write_variant(fields, request, matching, &mut out);
    out
}

#[test]
fn names_are_sorted_lower_case_and_unique() {
    let both = Vary::Fields(vec![ACCEPT, ACCEPT_LANGUAGE]);
    for lines in [
        &["accept, accept-language"][..],
        &["Accept-Language ,ACCEPT"],
        &["Accept-Language", "accept"],
        &["accept, ,accept, accept-language,"],
    ] {
        assert_eq!(of(lines), both, "{lines:?}");
    }
    for lines in [&[][..], &[""], &[" , "]] {
        assert_eq!(of(lines), Vary::None, "{lines:?}");
    }
}

#[test]
fn a_star_or_junk_anywhere_matches_no_request() {
    for lines in [
        &["*"][..],
        &["*, *"],
        &[", *"],
        &["", "*"],
        &["accept, *"],
        &["*, accept"],
        &["accept accept-language"],
        &["a=b"],
        &["\u{e9}"],
    ] {
        assert_eq!(of(lines), Vary::Any, "{lines:?}");
    }
    let many: Vec<_> = (0..=MAX_FIELDS).map(|n| format!("x-{n}")).collect();
    assert_eq!(of(&[&many.join(",")]), Vary::Any);
    assert!(
        matches!(of(&[&many[1..].join(",")]), Vary::Fields(fields) if fields.len() == MAX_FIELDS)
    );
}

#[test]
fn encoded_and_single_origin_responses_vary_without_saying_so() {
    let implied = |lines: &[(HeaderName, &str)]| Vary::of_response(&headers(lines));

    assert_eq!(
        implied(&[(CONTENT_ENCODING, "gzip")]),
        Vary::Fields(vec![ACCEPT_ENCODING])
    );
    assert_eq!(implied(&[(CONTENT_ENCODING, "Identity")]), Vary::None);
    assert_eq!(implied(&[(ACCESS_CONTROL_ALLOW_ORIGIN, "*")]), Vary::None);
    assert_eq!(
        implied(&[
            (ACCESS_CONTROL_ALLOW_ORIGIN, "https://a.example"),
            (VARY, "accept")
        ]),
        Vary::Fields(vec![ACCEPT, ORIGIN])
    );
}

#[test]
fn a_union_varies_on_the_fields_of_both() {
    let one = Vary::Fields(vec![ACCEPT]);
    let other = Vary::Fields(vec![ACCEPT, ORIGIN]);

    assert_eq!(one.clone().union(other.clone()), other);
    assert_eq!(one.clone().union(Vary::None), one);
    assert_eq!(Vary::None.union(one.clone()), one);
    assert_eq!(one.union(Vary::Any), Vary::Any);
}

#[test]
fn a_field_that_is_taken_care_of_otherwise_selects_nothing() {
    let fields = |names: &[HeaderName]| Vary::Fields(names.to_vec());

    assert_eq!(of(&["cookie"]).without(&http::header::COOKIE), Vary::None);
    assert_eq!(
        of(&["cookie, origin"]).without(&http::header::COOKIE),
        fields(&[ORIGIN])
    );
    assert_eq!(of(&["*"]).without(&http::header::COOKIE), Vary::Any);
    assert_eq!(Vary::None.without(&http::header::COOKIE), Vary::None);
}

#[test]
fn an_absent_field_differs_from_an_empty_one() {
    for matching in [Matching::Exact, Matching::Combined] {
        let absent = variant(&[ACCEPT], &HeaderMap::new(), matching);
        let empty = variant(&[ACCEPT], &headers(&[(ACCEPT, "")]), matching);

        assert_ne!(absent, empty);
    }
}

#[test]
fn combined_matching_joins_lines_and_drops_white_space_outside_quotes() {
    let combined = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| (ACCEPT, *line)).collect();
        variant(&[ACCEPT], &headers(&lines), Matching::Combined)
    };

    assert_eq!(combined(&["1, 2"]), combined(&["1", "2"]));
    assert_eq!(combined(&["1,2"]), combined(&[" 1 ,  2 "]));
    assert_ne!(combined(&["1,2"]), combined(&["2,1"]));
    assert_ne!(combined(&["\"1, 2\""]), combined(&["\"1,2\""]));
}

fn request() -> impl Strategy<Value = Vec<(HeaderName, String)>> {
    let names = prop_oneof![Just(ACCEPT), Just(ORIGIN), Just(ACCEPT_LANGUAGE)];
    proptest::collection::vec((names, "[a, \u{0}-\u{2}]{0,3}"), 0..5).prop_map(|lines| {
        lines
            .into_iter()
            .map(|(name, text)| (name, text.replace(|c: char| c.is_control(), "b")))
            .collect()
    })
}

fn map(lines: &[(HeaderName, String)]) -> HeaderMap {
    let lines: Vec<_> = lines
        .iter()
        .map(|(name, text)| (name.clone(), &**text))
        .collect();
    headers(&lines)
}

fn values(fields: &[HeaderName], request: &HeaderMap) -> Vec<(HeaderName, Vec<HeaderValue>)> {
    fields
        .iter()
        .map(|field| {
            (
                field.clone(),
                request.get_all(field).iter().cloned().collect(),
            )
        })
        .collect()
}

proptest! {
    #[test]
    fn exact_variants_are_equal_only_for_equal_values(
        one in request(),
        other in request(),
        split in 0..=3_usize,
    ) {
        let all = [ACCEPT, ACCEPT_LANGUAGE, ORIGIN];
        let (one, other) = (map(&one), map(&other));
        let fields = &all[..split];
        let same = values(fields, &one) == values(fields, &other);

        prop_assert_eq!(
            variant(fields, &one, Matching::Exact) == variant(fields, &other, Matching::Exact),
            same
        );
        if same {
            prop_assert_eq!(
                variant(fields, &one, Matching::Combined),
                variant(fields, &other, Matching::Combined)
            );
        }
    }

    #[test]
    fn combined_variants_are_equal_only_for_the_same_members(
        one in proptest::collection::vec("[ab, ]{0,4}", 0..3),
        other in proptest::collection::vec("[ab, ]{0,4}", 0..3),
        third in proptest::collection::vec("[ab, ]{0,4}", 0..3),
    ) {
        let members = |lines: &[String]| {
            let text = lines.join(",");
            let members = text.split(',').map(str::trim).filter(|member| !member.is_empty());
            let members: Vec<_> = members.map(str::to_owned).collect();
            (!lines.is_empty()).then_some(members)
        };
        let encoded = |first: &[String], second: &[String]| {
            let mut request = HeaderMap::new();
            for (name, lines) in [(ACCEPT_ENCODING, first), (ORIGIN, second)] {
                for line in lines {
                    request.append(&name, HeaderValue::from_str(line).unwrap());
                }
            }
            variant(&[ACCEPT_ENCODING, ORIGIN], &request, Matching::Combined)
        };

        let same = members(&one) == members(&third) && members(&other) == members(&one);
        prop_assert_eq!(encoded(&one, &other) == encoded(&third, &one), same);
    }

    #[test]
    fn variants_for_different_fields_never_meet(lines in request(), a in 0..=3_usize, b in 0..=3_usize) {
        let all = [ACCEPT, ACCEPT_LANGUAGE, ORIGIN];
        let request = map(&lines);

        prop_assert_eq!(
            variant(&all[..a], &request, Matching::Exact) == variant(&all[..b], &request, Matching::Exact),
            a == b
        );
    }
}
