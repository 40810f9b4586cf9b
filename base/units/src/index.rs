//! Indices as types, so that a member is never taken for a drive.

use std::fmt;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $display:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The index as a position in memory.
            #[inline]
            #[must_use]
            pub fn at(self) -> usize {
                usize::try_from(self.0).expect("an index fits usize on 64-bit machines")
            }

            /// The index of a position in memory.
            ///
            /// # Panics
            /// When the position does not fit; positions come from pools and tables with bounds.
            #[inline]
            #[must_use]
            pub fn from_at(position: usize) -> Self {
                Self(<$inner>::try_from(position).expect("positions are bounded by limits.rs"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($display, "{}"), self.0)
            }
        }
    };
}

index!(
    /// A reactor of this engine, numbered from 0.
    ReactorIndex, u16, "reactor "
);
index!(
    /// A NUMA node of this machine, as the kernel numbers them.
    NodeIndex, u16, "node "
);
index!(
    /// A drive that this engine has opened. Not stable over restarts.
    DriveIndex, u16, "drive "
);
index!(
    /// An array that this engine has assembled. Not stable over restarts.
    ArrayIndex, u16, "array "
);
index!(
    /// A place in an array, numbered over all groups: group × members per group + place in group.
    MemberIndex, u16, "member "
);
index!(
    /// A group of an array of level 10, 50, 60 or 70; 0 elsewhere.
    GroupIndex, u16, "group "
);
index!(
    /// A chunk's part in its stripe: `0..k` are data chunks in user order, `k..k+M` are P, Q, R, ….
    Role, u8, "role "
);
index!(
    /// A stripe of the array, numbered over all groups: stripe `s` lies in group `s % groups`.
    StripeIndex, u64, "stripe "
);
index!(
    /// Orders the configurations of an array; strictly increases.
    Update, u64, "update "
);
