//! The examples do what the README says of them.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::wire::example;

fn herd(arguments: &[&str]) -> Command {
    let mut command = example("herd");
    command.args(arguments);
    command
}

fn reports(arguments: &[&str]) -> Vec<Value> {
    let output = herd(arguments)
        .arg("--json")
        .output()
        .expect("the example runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("the report is text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

fn report(case: &str) -> Value {
    let mut all = reports(&["--requests", "50", "--build-ms", "50", "--case", case]);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a field is a count")
}

#[test]
fn the_herd_reports_exactly_the_documented_fields() {
    let report = report("cold");

    let names = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    let measured = [
        "builds",
        "errors",
        "max_ms",
        "p50_ms",
        "p99_ms",
        "peak_builds",
        "redis_commands",
        "requests",
        "status",
    ];
    let mut all = [&measured[..], &["case", "workers", "unprotected"]].concat();
    all.sort_unstable();
    assert_eq!(names(&report), all);
    assert_eq!(names(&report["unprotected"]), measured);
}

#[test]
fn one_worker_builds_once_and_answers_everyone() {
    for case in ["cold", "expired"] {
        let report = report(case);

        assert_eq!(
            (count(&report["builds"]), count(&report["peak_builds"])),
            (1, 1),
            "{case}"
        );
        assert_eq!(count(&report["status"]["200"]), 50, "{case}");
        assert_eq!(count(&report["errors"]), 0, "{case}");
        assert_eq!(count(&report["redis_commands"]), 0, "{case}");
        assert_eq!(count(&report["unprotected"]["builds"]), 50, "{case}");
    }
}

#[test]
fn nobody_ever_waits_where_what_is_stale_is_served_or_refreshed_ahead_of_time() {
    let options = ["--requests", "2000", "--case", "expired"];
    let report = reports(&options).remove(0);
    let measured = |manner: &str| (count(&report[manner]["waited"]), &report[manner]["status"]);
    let all = serde_json::json!({"200": 2000});

    assert_eq!(count(&report["unprotected"]["waited"]), 2000, "{report}");
    assert!(count(&report["waited"]) > 0, "{report}");
    assert_eq!(measured("stale"), (0, &all), "{report}");
    assert_eq!(count(&report["stale"]["builds"]), 1, "{report}");
    // None, but for a machine under load, where no build may end in time.
    let (waited, status) = measured("early");
    assert!(
        waited < count(&report["waited"]) / 2 + 1 && status == &all,
        "{report}"
    );
    // For two and a half lives.
    let builds = count(&report["early"]["builds"]);
    assert!((2..=8).contains(&builds), "{report}");
}

#[test]
fn a_failing_build_is_not_repeated() {
    let failing = report("failing");
    let panicking = report("panicking");

    assert_eq!(count(&failing["builds"]), 1);
    assert_eq!(count(&failing["status"]["500"]), 50);
    assert_eq!(count(&panicking["builds"]), 1);
    assert_eq!(count(&panicking["status"]["500"]), 49);
    assert_eq!(
        count(&panicking["errors"]),
        1,
        "the panic reaches the request that started the build"
    );
    assert_eq!(count(&panicking["unprotected"]["errors"]), 50);
}

#[test]
fn a_client_that_leaves_harms_nobody() {
    let report = report("disconnect");

    assert_eq!(count(&report["builds"]), 1);
    assert_eq!(count(&report["status"]["200"]), 49);
    assert_eq!(count(&report["errors"]), 0);
}

#[test]
fn whoever_cannot_share_is_answered_alone() {
    let all = reports(&[
        "--requests",
        "50",
        "--build-ms",
        "50",
        "--case",
        "uncacheable",
        "--case",
        "large",
    ]);

    let cases: Vec<_> = all
        .iter()
        .map(|report| report["case"].as_str().unwrap())
        .collect();
    assert_eq!(cases, ["uncacheable", "uncacheable-second-wave", "large"]);
    for report in all {
        assert_eq!(count(&report["status"]["200"]), 50, "{report}");
        assert_eq!(count(&report["builds"]), 50, "{report}");
    }
}

#[test]
fn those_who_have_waited_long_enough_share_one_more_build() {
    let report = report("slow");

    assert!(count(&report["builds"]) <= 2, "{report}");
    assert_eq!(count(&report["status"]["200"]), 50);
}

#[test]
fn workers_on_one_redis_build_once_and_ask_it_by_the_worker_and_not_by_the_request() {
    const WORKERS: u64 = 2;
    const REQUESTS: u64 = 400;
    // Calls inside scripts count too. A worker claims, polls, fills and is woken a few times.
    const COMMANDS_OF_A_WORKER: u64 = 100;

    let (workers, requests) = (WORKERS.to_string(), REQUESTS.to_string());
    let options = [
        "--workers",
        &workers,
        "--requests",
        &requests,
        "--build-ms",
        "50",
    ];
    let report = reports(&[&options[..], &["--case", "cold"]].concat()).remove(0);

    assert_eq!(count(&report["builds"]), 1, "{report}");
    assert_eq!(count(&report["status"]["200"]), REQUESTS, "{report}");
    assert_eq!(count(&report["errors"]), 0, "{report}");
    let commands = count(&report["redis_commands"]);
    assert!(commands < WORKERS * COMMANDS_OF_A_WORKER, "{report}");
}

#[test]
fn nothing_outlives_a_herd_that_is_killed() {
    let mut herd = herd(&["--workers", "2", "--build-ms", "5000", "--case", "cold"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example runs");
    let mut line = String::new();
    BufReader::new(herd.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();

    herd.kill().unwrap();

    herd.wait().unwrap();
    // Every descendant holds the other end: this returns when the last of them has ended.
    let mut rest = Vec::new();
    herd.stderr.take().unwrap().read_to_end(&mut rest).unwrap();
}
