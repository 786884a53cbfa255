//! Dry runs of launches (aws 18.4): EC2 checks the permissions for a call and does not make it.

use crate::errors::{cloud_error, incomplete};
use crate::machines::Machines;
use crate::template::tag_specification;
use aws_sdk_ec2::types as sdk;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use whittle_ec2::errors::ApiError;
use whittle_ec2::fleet::{FleetRequest, LaunchTemplate, TemplateInterface};
use whittle_ports::{CloudError, DryRuns, InstanceRun};

impl DryRuns for Machines {
    async fn ensure_tried_template(&self, template: &LaunchTemplate) -> Result<(), CloudError> {
        self.create_template(template).await
    }

    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), CloudError> {
        const CALL: &str = "CreateFleet";
        let settings = self.one_attempt(CALL)?;
        passed(CALL, self.fleet_input(request).dry_run(true).customize().config_override(settings).send().await)
    }

    async fn dry_run_instance(&self, run: &InstanceRun<'_>) -> Result<(), CloudError> {
        const CALL: &str = "RunInstances";
        let settings = self.one_attempt(CALL)?;
        let template = sdk::LaunchTemplateSpecification::builder().launch_template_name(&run.template.name).version("$Latest").build();
        let request = self
            .ec2
            .run_instances()
            .dry_run(true)
            .min_count(1)
            .max_count(1)
            .launch_template(template)
            .instance_type(sdk::InstanceType::from(run.instance_type))
            .set_network_interfaces(Some(run.template.interfaces.iter().map(|each| interface(each, run)).collect()))
            .tag_specifications(tag_specification(sdk::ResourceType::Instance, run.tags))
            .tag_specifications(tag_specification(sdk::ResourceType::Volume, run.tags))
            .tag_specifications(tag_specification(sdk::ResourceType::NetworkInterface, &run.template.tags));
        passed(CALL, request.customize().config_override(settings).send().await)
    }
}

/// An interface of the template, in the subnet of the run: EC2 takes no subnet beside interfaces.
fn interface(interface: &TemplateInterface, run: &InstanceRun<'_>) -> sdk::InstanceNetworkInterfaceSpecification {
    let index = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    sdk::InstanceNetworkInterfaceSpecification::builder()
        .device_index(index(interface.device_index))
        .set_network_card_index(interface.card_index.map(index))
        .set_interface_type(interface.interface_type.clone())
        .set_associate_public_ip_address(interface.associate_public_ip)
        .set_groups(Some(run.template.security_group_ids.clone()))
        .subnet_id(run.subnet_id)
        .build()
}

/// EC2 answers a dry run with an error in any case: one of its codes says that the call would have succeeded.
fn passed<T, E>(call: &'static str, answer: Result<T, SdkError<E, Response>>) -> Result<(), CloudError>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let error = match answer {
        Ok(_) => return Err(incomplete(call, "the dry run was not answered as one")),
        Err(error) => cloud_error(call, error),
    };
    let is_passed = ApiError::client(error.code.as_str(), error.message.as_str()).is_dry_run_success();
    if is_passed { Ok(()) } else { Err(error) }
}
