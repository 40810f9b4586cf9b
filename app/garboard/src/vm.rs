//! What attaches an export to a virtual machine: exact arguments of QEMU and Cloud Hypervisor,
//! XML of libvirt.
//!
//! All three need guest memory that the engine can map (a shared memfd). QEMU and libvirt are
//! told to reconnect, so that an engine may be restarted under a running guest.

use std::path::Path;

use control::view::{ExportState, ExportView};
use control::{Answer, EngineError, ErrorKind};
use units::Size;

/// What is needed of an export and of the VM that gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The export's name.
    pub name: String,
    /// Where it listens.
    pub socket: String,
    /// Queues the export has.
    pub queues: u16,
    /// Descriptors of a queue.
    pub queue_size: u16,
    /// The VM's memory.
    pub memory: Size,
}

const MIB: u64 = 1 << 20;

impl Attachment {
    /// The attachment of `export` to a VM with so much memory.
    ///
    /// # Errors
    /// `Busy` while the export is missing, `Invalid` for memory that is not whole MiB.
    pub fn of(export: &ExportView, memory: Size) -> Answer<Attachment> {
        let object = format!("export {}", export.name);
        if memory.0 == 0 || !memory.0.is_multiple_of(MIB) {
            let message = format!("memory of {memory}: it is whole MiB and not 0");
            return Err(EngineError::new(ErrorKind::Invalid, object, message)
                .next("give it with its unit, for example 512MiB or 4GiB"));
        }
        let profile = export
            .profile
            .as_ref()
            .filter(|_| export.state != ExportState::Missing);
        let Some(profile) = profile else {
            let cause = export
                .cause
                .clone()
                .unwrap_or_else(|| "it is not made".into());
            return Err(EngineError::new(ErrorKind::Busy, object, cause));
        };
        Ok(Attachment {
            name: export.name.clone(),
            socket: path_text(&export.socket, &object)?,
            queues: profile.queues,
            queue_size: profile.queue_size,
            memory,
        })
    }

    /// Arguments of `qemu-system-*`, one by one. (QEMU 9.2 and later also know
    /// `reconnect-ms=1000` for `reconnect=1`.)
    #[must_use]
    pub fn qemu(&self) -> Vec<String> {
        let id = format!("garboard-{}", self.name);
        let memory = self.memory.0 / MIB;
        // In QEMU's option lists a comma is written twice.
        let socket = self.socket.replace(',', ",,");
        [
            "-m".to_owned(),
            format!("{memory}M"),
            "-object".to_owned(),
            format!("memory-backend-memfd,id=garboard-memory,size={memory}M,share=on"),
            "-machine".to_owned(),
            "memory-backend=garboard-memory".to_owned(),
            "-chardev".to_owned(),
            format!("socket,id={id},path={socket},reconnect=1"),
            "-device".to_owned(),
            format!(
                "vhost-user-blk-pci,id={id}-drive,chardev={id},num-queues={},queue-size={}",
                self.queues, self.queue_size
            ),
        ]
        .into()
    }

    /// Two elements of a libvirt domain: `memoryBacking` below `domain`, `disk` below `devices`.
    #[must_use]
    pub fn libvirt(&self) -> String {
        let Attachment {
            queues, queue_size, ..
        } = self;
        let socket = xml_escape(&self.socket);
        format!(
            "\
<memoryBacking>
  <source type='memfd'/>
  <access mode='shared'/>
</memoryBacking>

<disk type='vhostuser' device='disk'>
  <driver name='qemu' type='raw' queues='{queues}' queue_size='{queue_size}'/>
  <source type='unix' path='{socket}'>
    <reconnect enabled='yes' timeout='1'/>
  </source>
  <target dev='vda' bus='virtio'/>
</disk>
"
        )
    }

    /// Arguments of `cloud-hypervisor`, one by one. It refuses more queues than the VM has CPUs,
    /// so it is to boot with at least that many.
    ///
    /// # Errors
    /// `Invalid` when its syntax cannot express the socket's path.
    pub fn cloud_hypervisor(&self) -> Answer<Vec<String>> {
        if self.socket.contains([',', '"', '[', ']']) {
            let message = format!("cloud-hypervisor cannot be given the path {}", self.socket);
            return Err(EngineError::new(
                ErrorKind::Invalid,
                format!("export {}", self.name),
                message,
            )
            .next("make the export with another --socket"));
        }
        let disk = format!(
            "vhost_user=true,socket={},num_queues={},queue_size={}",
            self.socket, self.queues, self.queue_size
        );
        Ok(vec![
            "--cpus".to_owned(),
            format!("boot={}", self.queues),
            "--memory".to_owned(),
            format!("size={}M,shared=on", self.memory.0 / MIB),
            "--disk".to_owned(),
            disk,
        ])
    }
}

fn path_text(path: &Path, object: &str) -> Answer<String> {
    path.to_str().map(ToOwned::to_owned).ok_or_else(|| {
        EngineError::new(ErrorKind::Invalid, object, "the socket's path is not UTF-8")
    })
}

fn xml_escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Arguments as one text for a shell: an option and its value on a line.
#[must_use]
pub fn shell(arguments: &[String]) -> String {
    let pairs: Vec<String> = arguments
        .chunks(2)
        .map(|pair| {
            pair.iter()
                .map(|text| quote(text))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    pairs.join(" \\\n  ")
}

/// One argument for a shell, in single quotes when it needs them.
fn quote(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=.,:/@%+".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(socket: &str) -> Attachment {
        Attachment {
            name: "v1".into(),
            socket: socket.into(),
            queues: 4,
            queue_size: 256,
            memory: Size(1 << 30),
        }
    }

    #[test]
    fn qemu_gets_shared_memory_and_reconnects() {
        let expected = "\
-m 1024M \\
  -object memory-backend-memfd,id=garboard-memory,size=1024M,share=on \\
  -machine memory-backend=garboard-memory \\
  -chardev socket,id=garboard-v1,path=/run/g/v1.sock,reconnect=1 \\
  -device vhost-user-blk-pci,id=garboard-v1-drive,chardev=garboard-v1,num-queues=4,queue-size=256";
        assert_eq!(shell(&attachment("/run/g/v1.sock").qemu()), expected);
    }

    #[test]
    fn odd_paths_are_quoted_as_each_reader_wants_it() {
        let odd = attachment("/run/a b,c'<&/s");
        let qemu = shell(&odd.qemu());
        let chardev = "-chardev 'socket,id=garboard-v1,path=/run/a b,,c'\\''<&/s,reconnect=1'";
        assert!(qemu.contains(chardev), "{qemu}");
        assert!(
            odd.libvirt().contains("path='/run/a b,c&apos;&lt;&amp;/s'"),
            "{}",
            odd.libvirt()
        );
        let refused = odd.cloud_hypervisor().expect_err("a comma in the path");
        assert_eq!(refused.kind, ErrorKind::Invalid);
    }

    #[test]
    fn libvirt_gets_shared_memory_queues_and_reconnects() {
        let xml = attachment("/run/g/v1.sock").libvirt();
        for part in [
            "<source type='memfd'/>",
            "<access mode='shared'/>",
            "<disk type='vhostuser' device='disk'>",
            "<driver name='qemu' type='raw' queues='4' queue_size='256'/>",
            "<source type='unix' path='/run/g/v1.sock'>",
            "<reconnect enabled='yes' timeout='1'/>",
        ] {
            assert!(xml.contains(part), "{part} in {xml}");
        }
    }

    #[test]
    fn cloud_hypervisor_gets_shared_memory_and_enough_cpus() {
        let arguments = attachment("/run/g/v1.sock")
            .cloud_hypervisor()
            .expect("a plain path");
        let expected = "\
--cpus boot=4 \\
  --memory size=1024M,shared=on \\
  --disk vhost_user=true,socket=/run/g/v1.sock,num_queues=4,queue_size=256";
        assert_eq!(shell(&arguments), expected);
    }
}
