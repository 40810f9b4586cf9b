//! `garboard vm …`.

use clap::{Args, Subcommand};
use control::Answer;
use control::view::ExportView;
use units::Size;

use super::export;
use crate::output::Output;
use crate::session::Session;
use crate::vm::{Attachment, shell};

/// Print what attaches an export to a virtual machine.
#[derive(Debug, Subcommand)]
pub(super) enum Vm {
    /// Arguments for qemu-system-*
    Qemu(Target),
    /// XML for a libvirt domain
    Libvirt(Target),
    /// Arguments for cloud-hypervisor
    CloudHypervisor(Target),
}

#[derive(Debug, Args)]
pub(super) struct Target {
    /// The export, by name or uuid
    #[arg(value_parser = super::key)]
    export: String,
    /// The VM's memory
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = super::size)]
    memory: Size,
}

impl Target {
    fn attachment(&self, session: &Session<'_, '_>) -> Answer<Attachment> {
        let view: ExportView = session.get(&export::path(&self.export))?;
        Attachment::of(&view, self.memory)
    }
}

impl Vm {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        match self {
            Vm::Qemu(target) => arguments(session, &target.attachment(session)?.qemu()),
            Vm::CloudHypervisor(target) => {
                arguments(session, &target.attachment(session)?.cloud_hypervisor()?)
            }
            Vm::Libvirt(target) => {
                let xml = target.attachment(session)?.libvirt();
                match session.output {
                    Output::Table => session.line(xml.trim_end()),
                    Output::Json => session.json(&serde_json::json!({ "xml": xml })),
                }
            }
        }
    }
}

fn arguments(session: &mut Session<'_, '_>, arguments: &[String]) -> Answer<()> {
    match session.output {
        Output::Table => session.line(&shell(arguments)),
        Output::Json => session.json(&serde_json::json!({ "arguments": arguments })),
    }
}
