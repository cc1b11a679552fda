use std::task::Waker;

use http_body::Body as _;
use proptest::prelude::*;
use tokio_test::{assert_pending, assert_ready, task};

use super::{growing::CHUNK, *};

fn writer() -> (Writer, Growing) {
    let writer = Writer::new(1000, Memory::new(2000));
    let growing = writer.growing();
    (writer, growing)
}

/// All that a reader can get now.
fn read(reader: &mut Reader) -> (Vec<u8>, Option<Step>) {
    let mut data = Vec::new();
    loop {
        match reader.poll(Waker::noop()) {
            Poll::Ready(Step::Data(chunk)) => data.extend_from_slice(&chunk),
            Poll::Ready(step) => return (data, Some(step)),
            Poll::Pending => return (data, None),
        }
    }
}

#[test]
fn a_late_reader_gets_what_an_early_one_got() {
    let (writer, growing) = writer();
    let mut early = growing.reader();
    writer.push(Bytes::from("one ")).expect("there is room");
    let (so_far, _) = read(&mut early);
    writer.push(Bytes::from("two")).expect("there is room");

    let whole = writer.end(End::Complete(None));

    let (rest, end) = read(&mut early);
    let (late, _) = read(&mut growing.reader());
    assert_eq!([so_far, rest].concat(), b"one two");
    assert!(matches!(end, Some(Step::End)));
    assert_eq!(late, b"one two");
    assert_eq!(whole, "one two");
}

#[test]
fn what_a_body_is_kept_as_does_not_hold_what_its_chunk_was_cut_from() {
    let (writer, growing) = writer();
    let large = Bytes::from(vec![1; 1000]);
    writer.push(large.slice(..10)).expect("there is room");

    let whole = writer.end(End::Complete(None));
    drop(growing);

    assert_eq!(whole, [1; 10][..]);
    assert!(large.is_unique());
}

#[test]
fn a_writer_that_goes_away_cuts_the_body() {
    let (writer, growing) = writer();
    let mut reader = growing.reader();
    writer.push(Bytes::from("half")).expect("there is room");

    drop(writer);

    let (data, end) = read(&mut reader);
    assert_eq!(data, b"half");
    assert!(matches!(end, Some(Step::Cut)));
}

#[test]
fn a_chunk_over_the_limit_comes_back_and_is_the_last() {
    let (writer, growing) = writer();
    writer
        .push(Bytes::from(vec![b'x'; 1000]))
        .expect("there is room");

    let Err(Refused::TooLarge(chunk)) = writer.push(Bytes::from("y")) else {
        panic!("it is over the limit");
    };
    writer.overflow(chunk);

    let (data, end) = read(&mut growing.reader());
    assert_eq!((data.len(), data.last()), (1001, Some(&b'y')));
    assert!(matches!(end, Some(Step::Overflow)));
}

#[test]
fn bodies_share_their_memory_and_give_it_back() {
    let memory = Memory::new(150 + 2 * CHUNK);
    let (one, other) = (
        Writer::new(100, memory.clone()),
        Writer::new(100, memory.clone()),
    );
    one.push(Bytes::from(vec![0; 100])).expect("there is room");

    assert!(matches!(
        other.push(Bytes::from(vec![0; 51])),
        Err(Refused::NoRoom(_))
    ));
    other.push(Bytes::from(vec![0; 50])).expect("there is room");
    assert_eq!(memory.used(), 150 + 2 * CHUNK);
    let reader = one.growing().reader();
    drop(one);
    assert_eq!(memory.used(), 150 + 2 * CHUNK, "somebody still reads it");
    drop(reader);
    drop(other);

    assert_eq!(memory.used(), 0);
}

#[test]
fn a_sleeping_reader_is_woken_by_a_chunk_and_by_the_end() {
    let (writer, growing) = writer();
    let mut body = task::spawn(reading(&growing));
    assert_pending!(body.poll());

    writer.push(Bytes::from("chunk")).expect("there is room");
    assert!(body.is_woken());
    assert_pending!(body.poll());
    drop(writer.end(End::Complete(None)));

    assert!(body.is_woken());
    assert_eq!(assert_ready!(body.poll()), b"chunk");
}

/// Reads to the end.
async fn reading(growing: &Growing) -> Vec<u8> {
    let mut reader = growing.reader();
    let mut data = Vec::new();
    std::future::poll_fn(move |cx| {
        loop {
            match ready!(reader.poll(cx.waker())) {
                Step::Data(chunk) => data.extend_from_slice(&chunk),
                _ => return Poll::Ready(std::mem::take(&mut data)),
            }
        }
    })
    .await
}

#[test]
fn a_body_with_trailers_has_no_exact_size_and_ends_after_them() {
    let trailers =
        HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("a"))]);
    let mut body = Box::pin(Body::<String>::full(Bytes::from("body"), Some(trailers)));
    let mut context = Context::from_waker(Waker::noop());

    assert_eq!(body.size_hint().exact(), None);
    let data = assert_ready!(body.as_mut().poll_frame(&mut context));
    assert!(data.expect("a frame").expect("it is whole").is_data());
    assert!(!body.is_end_stream());
    let last = assert_ready!(body.as_mut().poll_frame(&mut context));
    assert!(last.expect("a frame").expect("it is whole").is_trailers());
    assert!(body.is_end_stream());
    assert!(assert_ready!(body.as_mut().poll_frame(&mut context)).is_none());
}

#[test]
fn an_empty_body_has_ended() {
    let body = Body::<String>::default();

    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
}

#[derive(Clone, Debug)]
enum Act {
    Push(Vec<u8>),
    Join,
    Read(prop::sample::Index),
    Leave(prop::sample::Index),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..50).prop_map(Act::Push),
        2 => Just(Act::Join),
        3 => any::<prop::sample::Index>().prop_map(Act::Read),
        1 => any::<prop::sample::Index>().prop_map(Act::Leave),
    ];
    prop::collection::vec(act, 0..50)
}

proptest! {
    #[test]
    fn every_reader_gets_every_byte_at_its_own_pace(acts in acts()) {
        let memory = Memory::new(usize::MAX);
        let writer = Writer::new(usize::MAX, memory.clone());
        let growing = writer.growing();
        let (mut written, mut chunks) = (Vec::new(), 0);
        let mut readers: Vec<(Reader, Vec<u8>)> = Vec::new();
        for act in acts {
            match act {
                Act::Push(chunk) => {
                    written.extend_from_slice(&chunk);
                    chunks += 1;
                    writer.push(chunk.into()).expect("there is room");
                }
                Act::Join => readers.push((growing.reader(), Vec::new())),
                Act::Read(index) if !readers.is_empty() => {
                    let at = index.index(readers.len());
                    let (reader, got) = &mut readers[at];
                    if let Poll::Ready(Step::Data(chunk)) = reader.poll(Waker::noop()) {
                        got.extend_from_slice(&chunk);
                    }
                    prop_assert!(written.starts_with(got));
                }
                Act::Leave(index) if !readers.is_empty() => {
                    drop(readers.swap_remove(index.index(readers.len())));
                }
                Act::Read(_) | Act::Leave(_) => {}
            }
            prop_assert_eq!(memory.used(), written.len() + CHUNK * chunks);
        }

        let whole = writer.end(End::Complete(None));

        prop_assert_eq!(memory.used(), 0, "slow readers keep nobody from building");
        prop_assert_eq!(&whole[..], &written[..]);
        for (mut reader, mut got) in readers {
            let (rest, _) = read(&mut reader);
            got.extend_from_slice(&rest);
            prop_assert_eq!(&got, &written);
        }
    }
}
