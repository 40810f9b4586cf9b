//! What the mesh promises, on one thread and on several.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::NoWake;

fn quiet<T: Send>(reactors: usize, capacity: usize) -> Vec<Post<T>> {
    let wakers = (0..reactors).map(|_| Arc::new(NoWake) as Arc<dyn Wake>);
    mesh(wakers.collect(), capacity)
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_message_of_up_to_56_bytes_is_one_cache_line() {
    assert_eq!(size_of::<Entry<[u64; 7]>>(), 64);
    assert_eq!(align_of::<Entry<u8>>(), 64);
}

#[test]
fn a_request_and_its_reply_reach_the_right_reactors() {
    for (asker, owner) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let mut posts = quiet::<(usize, usize)>(3, 4);
        let there = ReactorIndex::from_at(owner);
        posts[asker].request(there, (asker, owner)).unwrap();
        assert!(posts.iter_mut().all(|post| post.receive().is_none()));
        posts[asker].publish();

        let (from, message) = posts[owner].receive().expect("published");
        assert_eq!((from.at(), message), (asker, (asker, owner)));
        posts[owner].reply(from, (7, 7));
        posts[owner].publish();

        assert_eq!(posts[asker].receive(), Some((there, (7, 7))));
        assert!(posts.iter_mut().all(|post| post.receive().is_none()));
    }
}

#[test]
fn a_request_is_refused_exactly_while_its_credits_are_out() {
    let mut posts = quiet::<u32>(2, 3);
    let (here, there) = (ReactorIndex(0), ReactorIndex(1));
    for number in 0..3 {
        assert_eq!(posts[0].request(there, number), Ok(()));
    }
    assert_eq!(posts[0].request(there, 9), Err(Full(9)));
    posts[0].publish();
    for number in 0..3 {
        assert_eq!(posts[1].receive(), Some((here, number)));
        // Received is not replied to: the credit is still out.
        assert_eq!(posts[0].request(there, 9), Err(Full(9)));
    }
    for number in 0..3 {
        posts[1].reply(here, number);
        posts[1].publish();
        assert_eq!(posts[0].credits(there), 0);
        assert_eq!(posts[0].receive(), Some((there, number)));
        assert_eq!(posts[0].credits(there), 1);
        assert_eq!(posts[0].request(there, 10 + number), Ok(()));
        assert_eq!(posts[0].request(there, 9), Err(Full(9)));
    }
}

#[test]
fn two_full_reactors_still_answer_each_other() {
    for capacity in [1, 2, 3, 8] {
        let mut posts = quiet::<usize>(2, capacity);
        for round in 0..if cfg!(miri) { 3 } else { 20 } {
            for (side, post) in posts.iter_mut().enumerate() {
                let other = ReactorIndex::from_at(1 - side);
                while post.request(other, round).is_ok() {}
                post.publish();
            }
            for post in &mut posts {
                for _ in 0..capacity {
                    let (from, message) = post.receive().expect("a request");
                    post.reply(from, message + 1000);
                }
                post.publish();
            }
            for post in &mut posts {
                for _ in 0..capacity {
                    assert_eq!(
                        post.receive().map(|(_, message)| message),
                        Some(round + 1000)
                    );
                }
                assert!(post.receive().is_none());
            }
        }
    }
}

#[test]
fn no_sender_is_kept_waiting_by_a_busier_one() {
    let mut posts = quiet::<u32>(4, 64);
    let owner = ReactorIndex(1);
    for _ in 0..64 {
        posts[3].request(owner, 0).unwrap();
    }
    posts[3].publish();
    assert!(posts[1].receive().is_some());
    // The busy inbox is not empty yet when two others come.
    for quiet in [0, 2] {
        posts[quiet].request(owner, 0).unwrap();
        posts[quiet].publish();
    }
    let mut next: Vec<usize> = (0..4)
        .filter_map(|_| posts[1].receive().map(|(from, _)| from.at()))
        .collect();
    next.sort_unstable();
    assert_eq!(next, [0, 2, 3, 3]);
}

#[test]
#[should_panic(expected = "without a request")]
fn a_reply_nobody_waits_for_is_a_mistake() {
    quiet::<u32>(2, 1)[0].reply(ReactorIndex(1), 0);
}

#[test]
#[should_panic(expected = "without a request")]
fn a_second_reply_to_one_request_is_a_mistake() {
    let mut posts = quiet::<u32>(2, 2);
    posts[0].request(ReactorIndex(1), 1).unwrap();
    posts[0].publish();
    let (asker, _) = posts[1].receive().expect("published");
    posts[1].reply(asker, 2);
    posts[1].reply(asker, 3);
}

#[test]
#[should_panic(expected = "no ring to itself")]
fn a_message_to_oneself_is_a_mistake() {
    let _ = quiet::<u32>(2, 1)[1].request(ReactorIndex(1), 0);
}

#[test]
fn only_a_parked_receiver_is_woken_and_only_once() {
    let bells: Vec<Arc<Bell>> = (0..3).map(|_| Arc::default()).collect();
    let wakers = bells.iter().map(|bell| Arc::clone(bell) as Arc<dyn Wake>);
    let mut posts: Vec<Post<u32>> = mesh(wakers.collect(), 8);
    let rung = |reactor: usize| bells[reactor].0.load(Ordering::Relaxed);
    let owner = ReactorIndex(1);

    posts[0].request(owner, 1).unwrap();
    posts[0].publish();
    assert_eq!(rung(1), 0, "it runs");
    assert_eq!(posts[1].park(), Park::MailWaiting);
    posts[0].request(owner, 2).unwrap();
    posts[0].publish();
    assert_eq!(rung(1), 0, "it did not go to sleep");
    while posts[1].receive().is_some() {}

    assert_eq!(posts[1].park(), Park::Parked);
    for sender in [0, 2, 0] {
        posts[sender].request(owner, 3).unwrap();
        posts[sender].publish();
    }
    assert_eq!(rung(1), 1, "one wake-up is enough");
    posts[1].unpark();
    assert_eq!((rung(0), rung(2)), (0, 0));

    while posts[1].receive().is_some() {}
    assert_eq!(posts[1].park(), Park::Parked);
    posts[1].unpark();
    posts[0].request(owner, 4).unwrap();
    posts[0].publish();
    assert_eq!(rung(1), 1, "it runs again");
}

#[test]
fn a_reactor_publishes_before_it_sleeps() {
    let mut posts = quiet::<u32>(2, 1);
    posts[0].request(ReactorIndex(1), 5).unwrap();
    assert_eq!(posts[0].park(), Park::Parked);
    assert_eq!(posts[1].receive(), Some((ReactorIndex(0), 5)));
}

#[test]
#[cfg_attr(miri, ignore = "16,256 rings take Miri minutes")]
fn the_largest_mesh_connects_everyone() {
    let mut posts = quiet::<usize>(REACTORS_MAX, 1);
    for (asker, post) in posts.iter_mut().enumerate() {
        for owner in (0..REACTORS_MAX).filter(|owner| *owner != asker) {
            let message = asker * REACTORS_MAX + owner;
            post.request(ReactorIndex::from_at(owner), message).unwrap();
        }
        post.publish();
    }
    for (owner, post) in posts.iter_mut().enumerate() {
        let mut askers: Vec<usize> = std::iter::from_fn(|| post.receive())
            .map(|(from, message)| {
                assert_eq!(message, from.at() * REACTORS_MAX + owner);
                from.at()
            })
            .collect();
        askers.sort_unstable();
        let expected: Vec<usize> = (0..REACTORS_MAX).filter(|asker| *asker != owner).collect();
        assert_eq!(askers, expected);
    }
}

/// Wakes a thread of the standard library; its token is kept like an eventfd's count.
struct Unpark(std::sync::OnceLock<thread::Thread>);

impl Wake for Unpark {
    fn wake(&self) {
        self.0
            .get()
            .expect("it registered before it parked")
            .unpark();
    }
}

/// Three threads ask each other as much as credits allow, answer everything, and sleep whenever
/// they may: a lost message or wake-up hangs the test, a double one fails an assertion.
#[test]
fn threads_that_ask_answer_and_sleep_lose_nothing() {
    let requests: usize = if cfg!(miri) { 10 } else { 4_000 };
    let reactors = 3;
    let wakers: Vec<Arc<Unpark>> = (0..reactors)
        .map(|_| Arc::new(Unpark(std::sync::OnceLock::new())))
        .collect();
    let doors = wakers
        .iter()
        .map(|waker| Arc::clone(waker) as Arc<dyn Wake>);
    let posts: Vec<Post<(bool, usize)>> = mesh(doors.collect(), 3);
    thread::scope(|scope| {
        for (post, waker) in posts.into_iter().zip(wakers) {
            scope.spawn(move || {
                waker.0.set(thread::current()).expect("once");
                ask_and_answer(post, requests);
            });
        }
    });
}

fn ask_and_answer(mut post: Post<(bool, usize)>, requests: usize) {
    let (me, reactors) = (post.index().at(), post.reactors());
    let others = reactors - 1;
    let (mut asked, mut answered, mut served) = (vec![0; reactors], 0, 0);
    while answered < requests * others || served < requests * others {
        for to in (0..reactors).filter(|to| *to != me) {
            while asked[to] < requests
                && post
                    .request(ReactorIndex::from_at(to), (true, asked[to]))
                    .is_ok()
            {
                asked[to] += 1;
            }
        }
        post.publish();
        let mut received = false;
        while let Some((from, (is_request, number))) = post.receive() {
            received = true;
            if is_request {
                served += 1;
                post.reply(from, (false, number));
            } else {
                answered += 1;
            }
        }
        if !received && post.park() == Park::Parked {
            thread::park();
            post.unpark();
        }
    }
    post.publish();
}
