//! Large bodies take less room in Redis, and are the same for everybody.

use http::{HeaderValue, header};
use http_body_util::Full;
use tower_stampede::Cache;

use crate::{
    shared::entry_of,
    support::{
        pairs::Pair,
        redis::RedisServer,
        worker::{Handler, Incoming, Outgoing, builder, cache, layer, settled},
    },
};

/// Larger than what a claim carries, unless it is compressed.
const LENGTH: usize = 200 * 1024;

fn compressing(redis: &RedisServer) -> Cache {
    let builder = builder(redis.url()).compress_over(1024);
    builder.build().unwrap()
}

fn products(build: usize, _: &Incoming) -> Outgoing {
    let line = format!("{{\"build\": {build}, \"price\": 4.99, \"in_stock\": true}}\n");
    let body: Vec<u8> = line.bytes().cycle().take(LENGTH).collect();
    Outgoing::new(Full::from(body))
}

fn coded(build: usize, request: &Incoming) -> Outgoing {
    let mut response = products(build, request);
    let coding = HeaderValue::from_static("br");
    response
        .headers_mut()
        .insert(header::CONTENT_ENCODING, coding);
    response
}

/// How long the entry is: what there is beside it is short.
fn stored(redis: &RedisServer) -> usize {
    let keys: Vec<String> = redis.command(&["KEYS", "*:e1*"]);
    let length = |key: &String| redis.command(&["STRLEN", key]);
    keys.iter().map(length).max().unwrap()
}

/// The commands that a server runs, one on a line, as it tells who asks by `MONITOR`.
struct Monitor(redis::Connection);

impl Monitor {
    fn start(redis: &RedisServer) -> Self {
        let mut connection = redis.client().get_connection().unwrap();
        redis::cmd("MONITOR").exec(&mut connection).unwrap();
        Self(connection)
    }

    /// All until now.
    fn lines(mut self, redis: &RedisServer) -> Vec<String> {
        redis.command::<String>(&["ECHO", "until now"]);
        let next = || redis::from_redis_value::<String>(self.0.recv_response().unwrap()).unwrap();
        std::iter::repeat_with(next)
            .take_while(|line| !line.contains("until now"))
            .collect()
    }
}

/// How often a value was read on its own, and not by a script.
fn plain_reads(lines: &[String]) -> usize {
    let is_read = |line: &&String| line.contains("] \"GET\"") && !line.contains("lua]");
    lines.iter().filter(is_read).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_takes_less_room_and_is_the_same_for_those_who_do_not_compress() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let (compressing, reading) = (compressing(&redis), cache(redis.url()));
    let builder = handler.worker(&layer(&compressing), products);
    let reader = handler.worker(&layer(&reading), products);

    let built = builder.get("/report").await;
    settled(&compressing).await;
    let read = reader.get("/report").await;

    assert!(stored(&redis) < LENGTH / 4, "{} bytes", stored(&redis));
    assert_eq!((built.body.len(), handler.builds()), (LENGTH, 1));
    assert_eq!(read.body, built.body);
    assert!(read.outcome.contains("hit"), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_hit_asks_nobody_for_what_is_compressed() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let cache = compressing(&redis);
    let worker = handler.worker(&layer(&cache), products);
    let built = worker.get("/report").await;
    settled(&cache).await;
    redis.reset_counts();

    for _ in 0..10 {
        assert_eq!(worker.get("/report").await.body, built.body);
    }

    assert_eq!(redis.count("evalsha") + redis.count("get"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_small_enough_comes_with_the_claim() {
    for (compressed, reads) in [(true, 0), (false, 1)] {
        let redis = RedisServer::start();
        let handler = Handler::open();
        let (building, reading) = (
            if compressed {
                compressing(&redis)
            } else {
                cache(redis.url())
            },
            cache(redis.url()),
        );
        handler
            .worker(&layer(&building), products)
            .get("/report")
            .await;
        settled(&building).await;
        let monitor = Monitor::start(&redis);

        handler
            .worker(&layer(&reading), products)
            .get("/report")
            .await;

        let lines = monitor.lines(&redis);
        assert_eq!(handler.builds(), 1);
        assert_eq!(plain_reads(&lines), reads, "compressed: {compressed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_coded_already_is_stored_as_it_is() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let cache = compressing(&redis);

    handler.worker(&layer(&cache), coded).get("/report").await;
    settled(&cache).await;

    assert!(stored(&redis) > LENGTH, "{} bytes", stored(&redis));
}

/// Damaged forms of a compressed entry.
fn damaged(value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    // Behind the head, one tag at least, and the length of the meta.
    let tags = std::str::from_utf8(&value[111..114]).unwrap();
    let meta = 114 + 32 * tags.parse::<usize>().unwrap() + 4;
    let claims = |length: u64| {
        let mut value = value.to_vec();
        value[meta..meta + 8].copy_from_slice(&length.to_be_bytes());
        value
    };
    let mut zeros = value.to_vec();
    let end = zeros.len();
    zeros[end - 100..].fill(0);
    vec![
        ("cut short", value[..value.len() - 1].to_vec()),
        ("half of it", value[..value.len() / 2].to_vec()),
        ("goes on", [value, &[0xff; 40]].concat()),
        ("zeros at its end", zeros),
        ("shorter than it says", claims(LENGTH as u64 + 1)),
        ("longer than it says", claims(LENGTH as u64 - 1)),
        ("a bomb", claims(1 << 46)),
        ("as long as can be", claims(u64::MAX)),
        ("of a later form", {
            let mut value = value.to_vec();
            value[4] = b'Y';
            value
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_entry_that_is_damaged_is_a_miss_and_overwritten() {
    let redis = RedisServer::start();
    let handler = Handler::open();
    let first = compressing(&redis);
    handler
        .worker(&layer(&first), products)
        .get("/report")
        .await;
    settled(&first).await;
    let entry = entry_of(&redis);
    let value: Vec<u8> = redis.command(&["GET", &entry]);

    for (name, damaged) in damaged(&value) {
        let before = handler.builds();
        let mut connection = redis.client().get_connection().unwrap();
        redis::cmd("SET")
            .arg(&entry)
            .arg(damaged)
            .arg("PX")
            .arg(50_000)
            .exec(&mut connection)
            .unwrap();
        let cold = compressing(&redis);

        let answer = handler.worker(&layer(&cold), products).get("/report").await;
        settled(&cold).await;

        assert_eq!(answer.body.len(), LENGTH, "{name}");
        assert_eq!(handler.builds(), before + 1, "{name}");
        let healed = cache(redis.url());
        let read = handler
            .worker(&layer(&healed), products)
            .get("/report")
            .await;
        assert_eq!(read.body, answer.body, "{name}");
        assert_eq!(handler.builds(), before + 1, "{name}: it was overwritten");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_store_too_it_takes_less_room_and_is_the_same() {
    for pair in Pair::all() {
        let handler = Handler::open();
        let compressing = pair.builder().compress_over(1024).build().unwrap();
        let reading = pair.cache();
        let builder = handler.worker(&layer(&compressing), products);
        let reader = handler.worker(&layer(&reading), products);

        let built = builder.get("/report").await;
        settled(&compressing).await;
        let read = reader.get("/report").await;

        assert_eq!((read.body, handler.builds()), (built.body, 1));
        if pair.name() == "memory" {
            let (store, _) = pair.in_memory();
            assert!((1..LENGTH / 2).contains(&store.sent()), "{}", store.sent());
        }
    }
}
