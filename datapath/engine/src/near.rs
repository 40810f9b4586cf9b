//! Which reactors are near an array's drives, and what follows: who owns its stripes at first, who
//! is its home, where rings of its exports begin.
//!
//! What does not live here: which node an array belongs to (`nodes`, the control path), and what
//! changes with load (the control path).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use units::{ArrayIndex, NodeIndex, ReactorIndex};

use crate::control::Engine;

/// The reactors on `node`; all of them where none is, or nobody knows the node.
pub(crate) fn near(nodes: &[Option<NodeIndex>], node: Option<NodeIndex>) -> Vec<ReactorIndex> {
    let all = || (0..nodes.len()).map(ReactorIndex::from_at);
    let is_near = |reactor: &ReactorIndex| node.is_some() && nodes[reactor.at()] == node;
    let near: Vec<ReactorIndex> = all().filter(is_near).collect();
    if near.is_empty() {
        all().collect()
    } else {
        near
    }
}

/// Where an array is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Of most of its drives.
    node: Option<NodeIndex>,
    home: ReactorIndex,
    /// The first so many reactors may own its stripes.
    writers: usize,
}

/// Where reactors and arrays are.
pub(crate) struct Places {
    /// By reactor.
    nodes: Vec<Option<NodeIndex>>,
    arrays: Mutex<BTreeMap<ArrayIndex, Place>>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.fmt(f)
    }
}

impl Places {
    /// Of so many reactors; those without an entry are nowhere.
    pub(crate) fn new(reactors: usize, nodes: &[Option<NodeIndex>]) -> Places {
        let node = |at: usize| nodes.get(at).copied().flatten();
        Places {
            nodes: (0..reactors).map(node).collect(),
            arrays: Mutex::default(),
        }
    }

    pub(crate) fn of(&self, reactor: ReactorIndex) -> Option<NodeIndex> {
        self.nodes[reactor.at()]
    }

    /// The other reactors on the node of this one, from the next on; all others where it has none.
    pub(crate) fn beside(&self, reactor: ReactorIndex) -> Vec<ReactorIndex> {
        let mut beside = near(&self.nodes, self.of(reactor));
        let own = beside.iter().position(|other| *other == reactor);
        let own = own.expect("it is on its node");
        beside.rotate_left(own);
        beside.remove(0);
        beside
    }

    /// Puts an array that starts on a node. Gives the reactors that own its stripes at first, of
    /// which only the first `writers` may, and its home, which is one of them: it is asked for each
    /// region that is written anew.
    pub(crate) fn put(
        &self,
        array: ArrayIndex,
        node: Option<NodeIndex>,
        writers: usize,
    ) -> (Vec<ReactorIndex>, ReactorIndex) {
        let may = |owner: &ReactorIndex| owner.at() < writers;
        let mut owners: Vec<ReactorIndex> =
            near(&self.nodes, node).into_iter().filter(may).collect();
        if owners.is_empty() {
            owners = near(&self.nodes, None).into_iter().filter(may).collect();
        }
        let home = owners[array.at() % owners.len()];
        let place = Place {
            node,
            home,
            writers,
        };
        self.arrays().insert(array, place);
        (owners, home)
    }

    fn arrays(&self) -> MutexGuard<'_, BTreeMap<ArrayIndex, Place>> {
        self.arrays.lock().expect("nothing panics under this lock")
    }
}

impl Engine {
    /// By reactor: the node of its CPU, where that is known.
    #[must_use]
    pub fn nodes(&self) -> &[Option<NodeIndex>] {
        &self.places.nodes
    }

    /// The reactors that are near an array's drives; all where none is, or nobody knows.
    ///
    /// # Panics
    /// When a thread panicked while it placed an array.
    #[must_use]
    pub fn near(&self, array: ArrayIndex) -> Vec<ReactorIndex> {
        let node = self.places.arrays().get(&array).copied();
        near(&self.places.nodes, node.and_then(|place| place.node))
    }

    /// Whether every reactor may own stripes of an array. Not those that have no part of its log
    /// (`LogSpace::writers`).
    ///
    /// # Panics
    /// When a thread panicked while it placed an array.
    #[must_use]
    pub fn all_may_own(&self, array: ArrayIndex) -> bool {
        let place = self.places.arrays().get(&array).copied();
        place.is_none_or(|place| place.writers >= self.places.nodes.len())
    }

    /// Most drives of an array hang on another node than before: what begins from now on begins
    /// there. Its home stays.
    ///
    /// # Panics
    /// When a thread panicked while it placed an array.
    pub fn set_node(&self, array: ArrayIndex, node: Option<NodeIndex>) {
        if let Some(place) = self.places.arrays().get_mut(&array) {
            place.node = node;
        }
    }

    /// The reactor whose shard writes metadata.
    pub(crate) fn home(&self, array: ArrayIndex) -> ReactorIndex {
        let place = self.places.arrays().get(&array).copied();
        // One that has never started is on no reactor.
        place.map_or(ReactorIndex(0), |place| place.home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn on(node: u16) -> Option<NodeIndex> {
        Some(NodeIndex(node))
    }

    fn of(reactors: &[u16]) -> Vec<ReactorIndex> {
        reactors.iter().copied().map(ReactorIndex).collect()
    }

    #[test]
    fn reactors_are_near_on_the_node_and_all_are_where_none_is() {
        let nodes = [on(0), on(1), None, on(1)];
        assert_eq!(near(&nodes, on(1)), of(&[1, 3]));
        assert_eq!(near(&nodes, on(0)), of(&[0]));
        assert_eq!(near(&nodes, on(2)), of(&[0, 1, 2, 3]), "no reactor there");
        assert_eq!(near(&nodes, None), of(&[0, 1, 2, 3]), "on no node");
        assert_eq!(near(&[None, None], None), of(&[0, 1]));
    }

    #[test]
    fn beside_a_reactor_are_the_others_of_its_node() {
        let places = Places::new(4, &[on(0), on(1), on(1), on(1)]);
        assert_eq!(places.beside(ReactorIndex(2)), of(&[3, 1]));
        assert_eq!(places.beside(ReactorIndex(0)), of(&[]));
        assert_eq!(Places::new(3, &[]).beside(ReactorIndex(1)), of(&[2, 0]));
    }

    #[test]
    fn who_has_no_part_of_the_log_owns_nothing() {
        let places = Places::new(4, &[on(0), on(0), on(1), on(1)]);
        let put = |node, writers| places.put(ArrayIndex(5), node, writers);
        assert_eq!(put(on(1), 3), (of(&[2]), ReactorIndex(2)));
        assert_eq!(put(on(0), 3), (of(&[0, 1]), ReactorIndex(1)));
        assert_eq!(put(on(1), 2), (of(&[0, 1]), ReactorIndex(1)), "none there");
        assert_eq!(put(None, 3), (of(&[0, 1, 2]), ReactorIndex(2)));
    }

    #[test]
    fn homes_of_arrays_take_turns_on_the_node() {
        let places = Places::new(4, &[on(0), on(1), on(1)]);
        for (array, node, home) in [(0, on(1), 1), (1, on(1), 2), (2, on(0), 0), (3, None, 3)] {
            let (owners, found) = places.put(ArrayIndex(array), node, 4);
            assert_eq!(found, ReactorIndex(home), "array {array}");
            assert_eq!(owners, near(&places.nodes, node));
        }
        assert_eq!(places.of(ReactorIndex(3)), None, "nobody has told");
    }
}
