//! Carries plans out with the oracle's arithmetic, on chunks of a few bytes.

use std::cell::OnceCell;

use array::{Method, ReadPlan, StripeState, WritePlan};
use model::Layout;
use model::field::{add_scaled, coefficient};
use units::{Role, RoleSet};

/// Roles of the largest group in these tests.
pub(crate) const ROLES: usize = 8;
/// A chunk of so many bytes.
pub(crate) type Chunk<const BYTES: usize> = [u8; BYTES];
/// The chunks of a stripe, by role; those beyond k + M are zero.
pub(crate) type Stripe<const BYTES: usize> = [Chunk<BYTES>; ROLES];

/// The code of stripes of k + M, with its decoders computed once each.
pub(crate) struct Code {
    pub(crate) k: usize,
    pub(crate) m: usize,
    coefficients: [[u8; ROLES]; ROLES],
    decoders: [OnceCell<[[u8; ROLES]; ROLES]>; 1 << ROLES],
}

impl Code {
    pub(crate) fn new(k: usize, m: usize) -> Code {
        assert!(k + m <= ROLES);
        let numbers = |parity| std::array::from_fn(|data| coefficient(parity, data));
        Code {
            k,
            m,
            coefficients: std::array::from_fn(numbers),
            decoders: [const { OnceCell::new() }; 1 << ROLES],
        }
    }

    pub(crate) fn data(&self) -> RoleSet {
        RoleSet::range(0, self.k)
    }

    pub(crate) fn roles(&self) -> RoleSet {
        RoleSet::range(0, self.k + self.m)
    }

    pub(crate) fn parity(&self) -> RoleSet {
        RoleSet::range(self.k, self.k + self.m)
    }

    /// Makes the parity agree with the data.
    pub(crate) fn encode<const BYTES: usize>(&self, stripe: &mut Stripe<BYTES>) {
        for parity in 0..self.m {
            let mut sum = [0; BYTES];
            for (data, chunk) in stripe[..self.k].iter().enumerate() {
                add_scaled(&mut sum, self.coefficients[parity][data], chunk);
            }
            stripe[self.k + parity] = sum;
        }
    }

    /// The whole stripe that k chunks determine.
    pub(crate) fn decode<const BYTES: usize>(
        &self,
        from: RoleSet,
        stripe: &Stripe<BYTES>,
    ) -> Stripe<BYTES> {
        assert_eq!(from.len(), self.k, "decodes from k chunks");
        let factors =
            self.decoders[usize::try_from(from.0).unwrap()].get_or_init(|| self.decoder(from));
        let mut decoded = [[0; BYTES]; ROLES];
        for data in 0..self.k {
            for role in from {
                add_scaled(
                    &mut decoded[data],
                    factors[data][role.at()],
                    &stripe[role.at()],
                );
            }
        }
        self.encode(&mut decoded);
        decoded
    }

    /// What the oracle decodes from unit chunks is its matrix: data × role.
    fn decoder(&self, from: RoleSet) -> [[u8; ROLES]; ROLES] {
        let layout = Layout {
            data: self.k,
            parity: self.m,
            groups: 1,
            chunk_bytes: ROLES,
            rows: 1,
        };
        let unit = |role: usize| (0..ROLES).map(|byte| u8::from(byte == role)).collect();
        let chunks: Vec<Option<Vec<u8>>> = (0..self.k + self.m)
            .map(|role| from.has(Role::from_at(role)).then(|| unit(role)))
            .collect();
        let decoded = layout.decode(&chunks).expect("k chunks decode");
        let mut factors = [[0; ROLES]; ROLES];
        for data in 0..self.k {
            factors[data].copy_from_slice(&decoded[data]);
        }
        factors
    }

    /// What is left of a stripe for a plan that reads only these roles.
    fn seen<const BYTES: usize>(
        plan_read: RoleSet,
        state: &StripeState,
        stripe: &Stripe<BYTES>,
    ) -> Stripe<BYTES> {
        assert!(!plan_read.meets(state.unreadable), "reads what it cannot");
        let mut seen = [[0; BYTES]; ROLES];
        for role in plan_read {
            seen[role.at()] = stripe[role.at()];
        }
        seen
    }

    /// Carries a write out on the stripe as its method says.
    pub(crate) fn write<const BYTES: usize>(
        &self,
        plan: &WritePlan,
        state: &StripeState,
        new: &[(Role, Chunk<BYTES>)],
        stripe: &mut Stripe<BYTES>,
    ) {
        assert!(!plan.write.meets(state.lost), "writes what is lost");
        assert!(self.roles().covers(plan.read.union(plan.write)));
        let old = Code::seen(plan.read, state, stripe);
        let mut after = old;
        if !plan.decode.is_empty() {
            let decoded = self.decode(plan.read, &old);
            for role in plan.decode {
                after[role.at()] = decoded[role.at()];
            }
        }
        for (role, chunk) in new {
            after[role.at()] = *chunk;
        }
        match plan.method {
            Method::ReadModifyWrite => {
                for parity in plan.write.both(self.parity()) {
                    for (role, chunk) in new {
                        let factor = self.coefficients[parity.at() - self.k][role.at()];
                        add_scaled(&mut after[parity.at()], factor, &old[role.at()]);
                        add_scaled(&mut after[parity.at()], factor, chunk);
                    }
                }
            }
            Method::Full | Method::ReconstructWrite | Method::ReconstructFirst => {
                self.encode(&mut after);
            }
            Method::Plain => assert!(!plan.write.meets(self.parity())),
        }
        for role in plan.write {
            stripe[role.at()] = after[role.at()];
        }
    }

    /// The chunks that a read or repair decodes; the others are zero.
    pub(crate) fn read<const BYTES: usize>(
        &self,
        plan: &ReadPlan,
        state: &StripeState,
        stripe: &Stripe<BYTES>,
    ) -> Stripe<BYTES> {
        assert!(self.roles().covers(plan.read.union(plan.decode)));
        let seen = Code::seen(plan.read, state, stripe);
        let mut decoded = [[0; BYTES]; ROLES];
        if !plan.decode.is_empty() {
            let all = self.decode(plan.read.lowest(self.k), &seen);
            for role in plan.decode {
                decoded[role.at()] = all[role.at()];
            }
        }
        decoded
    }
}
