//! The examples do what the README says of them.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{wire::example, worker::until};

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
        "all_ms",
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
        // A machine under load must not make it look as if Redis were slow.
        "--redis-budget-ms",
        "10000",
    ];
    let report = reports(&[&options[..], &["--case", "cold"]].concat()).remove(0);

    assert_eq!(count(&report["builds"]), 1, "{report}");
    assert_eq!(count(&report["status"]["200"]), REQUESTS, "{report}");
    assert_eq!(count(&report["errors"]), 0, "{report}");
    let commands = count(&report["redis_commands"]);
    assert!(commands < WORKERS * COMMANDS_OF_A_WORKER, "{report}");
}

const REDIS_FAILS: [&str; 3] = ["redis-frozen", "redis-killed", "redis-flapping"];

#[test]
fn while_redis_fails_and_afterwards_everybody_is_answered_and_nothing_stampedes() {
    const REQUESTS: u64 = 200;
    for case in REDIS_FAILS {
        let requests = REQUESTS.to_string();
        let options = ["--requests", &requests, "--build-ms", "50", "--case", case];
        let report = reports(&options).remove(0);

        assert_eq!(report["case"], case);
        assert_eq!(
            count(&report["workers"]),
            2,
            "there is nobody to share with"
        );
        let all = serde_json::json!({"200": REQUESTS});
        assert_eq!(report["status"], all, "{report}");
        assert_eq!(count(&report["errors"]), 0, "{report}");
        let phases = ["before", "during", "after"].map(|phase| &report[phase]);
        let sum = |field: &str| phases.iter().map(|phase| count(&phase[field])).sum::<u64>();
        assert_eq!(sum("requests"), REQUESTS, "{report}");
        assert!(phases.iter().all(|phase| count(&phase["requests"]) > 0));
        assert_eq!(sum("builds"), count(&report["builds"]), "{report}");
        let by_worker = report["builds_by_worker"].as_array().unwrap();
        let built: u64 = by_worker.iter().map(count).sum();
        assert_eq!((by_worker.len(), built), (2, count(&report["builds"])));
        // One, and another one where the events were interrupted meanwhile: never one for each request.
        let most = count(&report["most_builds_of_a_key_by_a_worker"]);
        assert!((1..=2).contains(&most), "{report}");
        assert!(count(&report["redis_commands"]) > 0, "{report}");
        assert_eq!(count(&report["unprotected"]["builds"]), REQUESTS);
    }
}

#[test]
fn the_cases_in_which_redis_fails_report_what_it_cost() {
    let options = [
        "--requests",
        "40",
        "--build-ms",
        "10",
        "--case",
        "redis-frozen",
    ];
    let report = reports(&options).remove(0);

    for cost in [
        "extra_p50_ms",
        "extra_p99_ms",
        "extra_max_ms",
        "healed_ms",
        "failed_ms",
        "budget_ms",
    ] {
        assert!(report[cost].is_number(), "{cost}: {report}");
    }
    for phase in ["before", "during", "after"] {
        let names: Vec<_> = report[phase].as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "all_ms", "builds", "errors", "max_ms", "p50_ms", "p99_ms", "requests", "status"
            ]
        );
    }
}

#[test]
fn a_redis_of_somebody_else_is_not_made_to_fail() {
    for case in REDIS_FAILS {
        let output = herd(&["--redis", "redis://127.0.0.1:1/", "--case", case])
            .output()
            .unwrap();

        assert!(!output.status.success());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(case) && told.contains("--redis"), "{told}");
    }
}

/// Whether a descendant of `ancestor` is a server that stands still.
fn has_frozen_server(ancestor: u32) -> bool {
    // `42 (redis-server) T 41 …`: the process, its name, its state, its parent.
    let processes: HashMap<u32, (bool, u32)> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter_map(|stat| {
            let (process, rest) = stat.split_once(" (")?;
            let (name, rest) = rest.rsplit_once(") ")?;
            let (state, rest) = rest.split_once(' ')?;
            let parent = rest.split(' ').next()?.parse().ok()?;
            let frozen = name == "redis-server" && state == "T";
            Some((process.parse().ok()?, (frozen, parent)))
        })
        .collect();
    let descends = |mut process: u32| {
        while let Some((_, parent)) = processes.get(&process) {
            if *parent == ancestor {
                return true;
            }
            process = *parent;
        }
        false
    };
    processes
        .iter()
        .any(|(process, (frozen, _))| *frozen && descends(*process))
}

#[tokio::test]
async fn not_even_a_frozen_server_outlives_a_herd_that_is_killed() {
    let mut herd = herd(&["--requests", "20", "--case", "redis-frozen"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example runs");
    until(|| has_frozen_server(herd.id())).await;

    herd.kill().unwrap();

    herd.wait().unwrap();
    let mut rest = Vec::new();
    herd.stderr.take().unwrap().read_to_end(&mut rest).unwrap();
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
