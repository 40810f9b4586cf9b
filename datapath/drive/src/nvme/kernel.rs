//! Whether this kernel can be believed when it says that a command was carried out.
//!
//! It gives the drive's status, which is 0 as well when the command never reached the drive: one
//! that is being taken away answers reads with whatever is in the memory and writes with success.
//! Linux says so since 6.7 ("nvme: fix error-handling for io_uring nvme-passthrough"), not from 6.8
//! to 6.10, and again since 6.12 ("nvme: re-fix ..."); the numbers below are those of the stable
//! kernels that have it. There is no other way to see it than to pull a drive.

use std::fs;

/// What this kernel calls itself, unless it tells commands that were never sent from others.
pub(crate) fn deceives() -> Option<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let release = release.trim();
    let told = tells_unsent(release, &read("/proc/version"));
    (!told).then(|| release.to_owned())
}

/// Whether this kernel is at least of this version.
pub(crate) fn is_kernel_since(version: (u32, u32)) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    numbers(release.trim()).is_some_and(|(major, minor, _)| (major, minor) >= version)
}

fn tells_unsent(release: &str, version: &str) -> bool {
    let Some((major, minor, mut patch)) = numbers(release) else {
        return false;
    };
    // Debian names the stable kernel only there.
    let based_on = version.split(" Debian ").nth(1).and_then(numbers);
    if let Some((_, _, other)) = based_on.filter(|base| (base.0, base.1) == (major, minor)) {
        patch = patch.max(other);
    }
    match (major, minor) {
        (6, 1) => patch >= 63,
        (6, 5) => patch >= 12,
        (6, 6) => patch >= 2,
        (6, 7) => true,
        (6, 11) => patch >= 7,
        (6, minor) => minor >= 12,
        (major, _) => major > 6,
    }
}

/// The three numbers that a text begins with; what is missing is 0.
fn numbers(text: &str) -> Option<(u32, u32, u32)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let mut parts = text[..end.unwrap_or(text.len())].split('.');
    let mut next = || parts.next()?.parse().ok();
    let (major, minor) = (next()?, next()?);
    Some((major, minor, next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernels_that_tell_commands_that_were_never_sent_are_believed() {
        for (release, believed) in [
            ("5.19.17", false),
            ("6.0.19", false),
            ("6.1.62", false),
            ("6.1.63", true),
            ("6.2.16", false),
            ("6.5.11", false),
            ("6.5.12-generic", true),
            ("6.6.1", false),
            ("6.6.2", true),
            ("6.7.0", true),
            ("6.8.0-49-generic", false),
            ("6.10.14", false),
            ("6.11.6", false),
            ("6.11.7", true),
            ("6.12.0", true),
            ("6.12.57+deb13-amd64", true),
            ("6.18", true),
            ("7.0.1", true),
            ("5.14.0-503.el9.x86_64", false),
            ("", false),
            ("strange", false),
        ] {
            assert_eq!(tells_unsent(release, ""), believed, "{release}");
        }
    }

    #[test]
    fn debian_says_elsewhere_which_stable_kernel_its_own_is() {
        let version = |base: &str| {
            format!(
                "Linux version 6.1.0-28-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian \
                 12.2.0-14) 12.2.0) #1 SMP PREEMPT_DYNAMIC Debian {base}-1 (2024-11-22)"
            )
        };
        assert!(tells_unsent("6.1.0-28-amd64", &version("6.1.119")));
        assert!(!tells_unsent("6.1.0-12-amd64", &version("6.1.52")));
        assert!(!tells_unsent("6.8.0-1-amd64", &version("6.12.3")));
    }
}
