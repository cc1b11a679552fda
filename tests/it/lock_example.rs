//! The example does what its first lines say.
#![cfg(feature = "redis")]

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The example, which Cargo builds beside the tests.
fn nightly() -> Command {
    let tests = env::current_exe().expect("the test is a file");
    let folder = tests.ancestors().nth(2).expect("in a folder of the target");
    let built: PathBuf = folder.join("examples/nightly");
    if !built.exists() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--example", "nightly"])
            .status();
        assert!(status.unwrap().success(), "the example builds");
    }
    Command::new(built)
}

#[test]
fn one_process_runs_the_job_the_others_say_who_and_a_killed_one_is_followed() {
    let output = nightly().stdin(Stdio::null()).output().unwrap();

    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let (peace, death) = text.split_once("-- the machine that runs it dies").unwrap();
    let count = |part: &str, words: &str| part.matches(words).count();
    assert_eq!(count(peace, "I run the job"), 1, "{text}");
    assert_eq!(count(peace, ": released"), 1, "{text}");
    let runner = peace.lines().find(|line| line.contains("I run the job"));
    let (runner, _) = runner.unwrap().split_once(':').unwrap();
    let told = format!(": {runner}, process ");
    assert_eq!(count(peace, &told), 3, "{text}");
    assert_eq!(count(peace, "for another "), 3, "{text}");
    assert_eq!(count(death, "victim: killed"), 1, "{text}");
    assert_eq!(count(death, "successor: took over "), 1, "{text}");
    let waited = death.split("took over ").nth(1).unwrap();
    let seconds: f64 = waited.split(' ').next().unwrap().parse().unwrap();
    assert!((1.0..4.0).contains(&seconds), "{text}");
}
