//! The kubelet's own configuration document, `kubelet.config.k8s.io/v1beta1`: names and types of all its fields as of Kubernetes 1.36, with
//! which Karpenter 1.14 is built.

use super::{Field, Schema, Shape, boolean, int32, int64, list, map, may, need, object, parts, text};

/// The schema, built once.
pub(crate) fn kubelet_document() -> &'static Schema {
    static SCHEMA: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(|| {
        let mut fields = scalars();
        fields.extend(structures());
        Schema::new(Shape::Object(fields))
    });
    &SCHEMA
}

const TEXTS: &[&str] = &[
    "kind",
    "apiVersion",
    "staticPodPath",
    "podLogsDir",
    "staticPodURL",
    "address",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "tlsMinVersion",
    "imagePullCredentialsVerificationPolicy",
    "healthzBindAddress",
    "clusterDomain",
    "kubeletCgroups",
    "systemCgroups",
    "cgroupRoot",
    "cgroupDriver",
    "cpuManagerPolicy",
    "memoryManagerPolicy",
    "memoryReservationPolicy",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "hairpinMode",
    "podCIDR",
    "resolvConf",
    "contentType",
    "containerLogMaxSize",
    "configMapAndSecretChangeDetectionStrategy",
    "reservedSystemCPUs",
    "showHiddenMetricsForVersion",
    "systemReservedCgroup",
    "kubeReservedCgroup",
    "volumePluginDir",
    "providerID",
    "containerRuntimeEndpoint",
    "imageServiceEndpoint",
];
const DURATIONS: &[&str] = &[
    "syncFrequency",
    "fileCheckFrequency",
    "httpCheckFrequency",
    "streamingConnectionIdleTimeout",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
    "volumeStatsAggPeriod",
    "cpuManagerReconcilePeriod",
    "runtimeRequestTimeout",
    "cpuCFSQuotaPeriod",
    "evictionPressureTransitionPeriod",
    "containerLogMonitorInterval",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
];
const SWITCHES: &[&str] = &[
    "enableServer",
    "rotateCertificates",
    "serverTLSBootstrap",
    "enableDebuggingHandlers",
    "enableContentionProfiling",
    "cgroupsPerQOS",
    "singleProcessOOMKill",
    "runOnce",
    "cpuCFSQuota",
    "serializeImagePulls",
    "mergeDefaultEvictionSettings",
    "enableControllerAttachDetach",
    "protectKernelDefaults",
    "makeIPTablesUtilChains",
    "failSwapOn",
    "kernelMemcgNotification",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "enableProfilingHandler",
    "enableDebugFlagsHandler",
    "seccompDefault",
    "registerNode",
    "localStorageCapacityIsolation",
    "failCgroupV1",
];
const NUMBERS: &[&str] = &[
    "port",
    "readOnlyPort",
    "registryPullQPS",
    "registryBurst",
    "eventRecordQPS",
    "eventBurst",
    "healthzPort",
    "oomScoreAdj",
    "nodeLeaseDurationSeconds",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "maxPods",
    "nodeStatusMaxImages",
    "kubeAPIQPS",
    "kubeAPIBurst",
    "maxParallelImagePulls",
    "evictionMaxPodGracePeriod",
    "podsPerCore",
    "iptablesMasqueradeBit",
    "iptablesDropBit",
    "containerLogMaxFiles",
    "containerLogMaxWorkers",
];
const LISTS: &[&str] =
    &["tlsCipherSuites", "clusterDNS", "enforceNodeAllocatable", "allowedUnsafeSysctls", "preloadedImagesVerificationAllowlist"];
const MAPS: &[&str] = &[
    "cpuManagerPolicyOptions",
    "topologyManagerPolicyOptions",
    "qosReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "systemReserved",
    "kubeReserved",
];

fn scalars() -> Vec<Field> {
    let of = |names: &'static [&'static str], schema: fn() -> Schema| names.iter().map(move |name| may(name, schema()));
    of(TEXTS, text)
        .chain(of(DURATIONS, text))
        .chain(of(SWITCHES, boolean))
        .chain(of(NUMBERS, int32))
        .chain(of(LISTS, || list(text())))
        .chain(of(MAPS, parts::texts))
        .chain([
            may("podPidsLimit", int64()),
            may("maxOpenFiles", int64()),
            may("memoryThrottlingFactor", Schema::new(Shape::Number)),
            may("tlsCurvePreferences", list(int32())),
        ])
        .collect()
}

fn structures() -> Vec<Field> {
    let buffers = || object([may("splitStream", boolean()), may("infoBufferSize", super::quantity())]);
    let authentication = object([
        may("x509", object([may("clientCAFile", text())])),
        may("webhook", object([may("enabled", boolean()), may("cacheTTL", text())])),
        may("anonymous", object([may("enabled", boolean())])),
    ]);
    let authorization =
        object([may("mode", text()), may("webhook", object([may("cacheAuthorizedTTL", text()), may("cacheUnauthorizedTTL", text())]))]);
    let logging = object([
        may("format", text()),
        may("flushFrequency", super::quantity_or_duration()),
        may("verbosity", int64()),
        may("vmodule", list(object([need("filePattern", text()), need("verbosity", int64())]))),
        may("options", object([may("text", buffers()), may("json", buffers())])),
    ]);
    let by_priority = list(object([need("priority", int32()), need("shutdownGracePeriodSeconds", int64())]));
    vec![
        may("staticPodURLHeader", map(list(text()))),
        may("authentication", authentication),
        may("authorization", authorization),
        may("featureGates", map(boolean())),
        may("memorySwap", object([may("swapBehavior", text())])),
        may("logging", logging),
        may("shutdownGracePeriodByPodPriority", by_priority),
        may("crashLoopBackOff", object([may("maxContainerRestartPeriod", text())])),
        may("reservedMemory", list(object([need("numaNode", int32()), need("limits", super::quantities())]))),
        may("registerWithTaints", parts::taints()),
        may("tracing", object([may("endpoint", text()), may("samplingRatePerMillion", int32())])),
        may("userNamespaces", object([may("idsPerPod", int64())])),
    ]
}
