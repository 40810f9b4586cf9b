//! What histories count.

/// What came of a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Requests answered.
    pub answered: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// Blocks of torn stripes written before the resync reached them.
    pub probed: u64,
    /// Members that hung while blocks of torn stripes were read from them.
    pub read_torn: u64,
    /// Crashes while members were out and writes under way.
    pub logged: u64,
    /// Kills together with the loss of a member, while writes were under way that were told of.
    pub begun: u64,
    /// Starts after a kill that had nothing to resync, because the killed engine had told so.
    pub trusted: u64,
    /// Holds in the middle of which an array was stopped.
    pub abandoned: u64,
    /// Blocks that bits flipped in, and that a scrub found.
    pub rotten: u64,
    /// Members left out because they did not answer.
    pub late: u64,
    /// Members that lagged behind their peers, and those left out for it.
    pub lagged: u64,
    /// See `lagged`.
    pub left_behind: u64,
    /// Members that came back, and regions that they had missed of all that there are.
    pub returned: u64,
    /// See `returned`.
    pub missed: (u64, u64),
    /// Members that might not come back as they were.
    pub refused: u64,
    /// Spells.
    pub spells: u64,
    /// Holds that were given up.
    pub given_up: u64,
    /// Copies of members that were told apart.
    pub copies: u64,
    /// Copies of members that took their places.
    pub successors: u64,
    /// Writes that the last engine carried out with others of their stripe.
    pub joined: u64,
}
