/* SPDX-License-Identifier: Apache-2.0
 *
 * k8s_kinds.c: the manifests as text: one pod for all, and around it what each kind of job wants.
 *
 * Workers dial out to the host of rank 0 (elastic: of the store), whenever it comes; nobody needs ssh.
 */
#include <stddef.h>

#include "cli/k8s.h"

const tri_k8s_tree tri_k8s_trees[] = {
    {"overrides", "[]", "list of section.key=value for the run"},
    {"env", "[]", "list of variables for the container: {name: A, value: b}"},
    {"volumes", "[]", "list of further volumes, such as one with the data"},
    {"mounts", "[]", "list of where they are mounted: {name: data, mountPath: /data, readOnly: true}"},
    {"tolerations", "[]", "list of taints that the pods bear"},
    {"node_selector", "{}", "labels that their nodes have"},
    {"affinity", "{}", "where the pods would rather be"},
    {NULL, NULL, NULL},
};

const tri_k8s_kind tri_k8s_kinds[] = {
    {"job", "OnFailure", "worker", "${name}-0.${name}", "env-index", ""},
    {"elastic", "Never", "worker", "${name}-store", "env-elastic", ""},
    {"jobset", "OnFailure", "worker", "${name}-workers-0-0.${name}", "env-index", ""},
    {"trainjob", "OnFailure", "node", "", "nothing", ""},
    {"pytorchjob", "OnFailure", "pytorch", "", "nothing", "Master"},
    {"tfjob", "OnFailure", "tensorflow", "", "nothing", "Chief"},
    {"mpijob", "OnFailure", "worker", "", "env-hosts", "Launcher"},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

static const char config_map[] = "apiVersion: v1\n"
                                 "kind: ConfigMap\n"
                                 "metadata:\n"
                                 "  name: ${name}-config\n"
                                 "  labels: {app.kubernetes.io/name: trireme, app.kubernetes.io/instance: ${name}}\n"
                                 "data:\n"
                                 "  run.yaml: |\n"
                                 "    %config\n";

/* Names of pods are looked for before the pods are ready: they wait for each other. */
static const char service[] = "---\n"
                              "apiVersion: v1\n"
                              "kind: Service\n"
                              "metadata:\n"
                              "  name: ${name}\n"
                              "  labels: {app.kubernetes.io/name: trireme, app.kubernetes.io/instance: ${name}}\n"
                              "spec:\n"
                              "  clusterIP: None\n"
                              "  publishNotReadyAddresses: true\n"
                              "  selector: {job-name: ${name}}\n"
                              "  ports:\n"
                              "    - {name: meet, port: ${port}}\n";

static const char store[] =
    "---\n"
    "apiVersion: v1\n"
    "kind: Service\n"
    "metadata:\n"
    "  name: ${name}-store\n"
    "  labels: {app.kubernetes.io/name: trireme, app.kubernetes.io/instance: ${name}}\n"
    "spec:\n"
    "  selector: {app.kubernetes.io/instance: ${name}, app.kubernetes.io/component: store}\n"
    "  ports:\n"
    "    - {name: meet, port: ${port}}\n"
    "---\n"
    "apiVersion: apps/v1\n"
    "kind: Deployment\n"
    "metadata:\n"
    "  name: ${name}-store\n"
    "  labels: {app.kubernetes.io/name: trireme, app.kubernetes.io/instance: ${name}}\n"
    "spec:\n"
    "  replicas: 1\n"
    "  strategy: {type: Recreate}\n"
    "  selector:\n"
    "    matchLabels: {app.kubernetes.io/instance: ${name}, app.kubernetes.io/component: store}\n"
    "  template:\n"
    "    metadata:\n"
    "      labels: {app.kubernetes.io/instance: ${name}, app.kubernetes.io/component: store}\n"
    "    spec:\n"
    "      @safe\n"
    "      containers:\n"
    "        - name: store\n"
    "          image: ${image}\n"
    "          args: [store, --listen, \"0.0.0.0:${port}\"]\n"
    "          env:\n"
    "            @env-token\n"
    "          ports:\n"
    "            - {name: meet, containerPort: ${port}}\n"
    "          readinessProbe: {tcpSocket: {port: meet}, periodSeconds: 5}\n"
    "          livenessProbe: {tcpSocket: {port: meet}, periodSeconds: 20}\n"
    "          resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}\n"
    "          @confined\n";

static const char safe[] =
    "automountServiceAccountToken: false\n"
    "enableServiceLinks: false\n"
    "securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: "
    "{type: RuntimeDefault}}\n";

static const char confined[] = "securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, "
                               "capabilities: {drop: [ALL]}}\n";

static const char env_token[] = "- {name: TRIREME_TOKEN, valueFrom: {secretKeyRef: {name: ${secret}, key: token}}}\n";

/* An indexed Job tells each pod its number. */
static const char env_index[] = "- name: RANK\n"
                                "  valueFrom: {fieldRef: {fieldPath: "
                                "\"metadata.annotations['batch.kubernetes.io/job-completion-index']\"}}\n"
                                "- {name: WORLD_SIZE, value: \"${workers}\"}\n"
                                "- {name: MASTER_ADDR, value: ${leader}}\n"
                                "- {name: MASTER_PORT, value: \"${port}\"}\n";

static const char env_elastic[] = "@env-index\n"
                                  "- {name: TRIREME_STORE, value: \"tcp://${leader}:${port}\"}\n";

static const char env_hosts[] = "- {name: TRIREME_HOSTFILE, value: /etc/trireme-hosts/hosts}\n"
                                "- {name: TRIREME_PORT, value: \"${port}\"}\n";

static const char pod[] = "restartPolicy: ${restart}\n"
                          "terminationGracePeriodSeconds: ${grace_s}\n"
                          "@safe\n"
                          "@subdomain\n"
                          "nodeSelector: ${node_selector}\n"
                          "tolerations: ${tolerations}\n"
                          "affinity: ${affinity}\n"
                          "volumes:\n"
                          "  - {name: config, configMap: {name: ${name}-config}}\n"
                          "  - {name: runs, persistentVolumeClaim: {claimName: ${claim}}}\n"
                          "  - {name: tmp, emptyDir: {}}\n"
                          "  @hosts-volume\n"
                          "  %volumes\n"
                          "containers:\n"
                          "  - name: ${container}\n"
                          "    image: ${image}\n"
                          "    args:\n"
                          "      - train\n"
                          "      - /etc/trireme/run.yaml\n"
                          "      - --out\n"
                          "      - /runs/${name}\n"
                          "      - --continue\n"
                          "      @elastic-args\n"
                          "      @metrics-args\n"
                          "      %overrides\n"
                          "    env:\n"
                          "      @env-token\n"
                          "      - {name: OMP_NUM_THREADS, value: \"${threads}\"}\n"
                          "      @env-kind\n"
                          "      %env\n"
                          "    ports:\n"
                          "      - {name: ${port_name}, containerPort: ${port}}\n"
                          "      @metrics-ports\n"
                          "    resources: {requests: {cpu: ${cpu}, memory: ${memory}}, limits: {memory: ${memory}}}\n"
                          "    startupProbe: {exec: {command: ${probe}}, periodSeconds: 30, timeoutSeconds: 5, "
                          "failureThreshold: ${startups}}\n"
                          "    livenessProbe: {exec: {command: ${probe}}, periodSeconds: 60, timeoutSeconds: 5}\n"
                          "    readinessProbe: {${ready}, periodSeconds: 60, timeoutSeconds: 5}\n"
                          "    @confined\n"
                          "    volumeMounts:\n"
                          "      - {name: config, mountPath: /etc/trireme, readOnly: true}\n"
                          "      - {name: runs, mountPath: /runs}\n"
                          "      - {name: tmp, mountPath: /tmp}\n"
                          "      @hosts-mount\n"
                          "      %mounts\n";

static const char replicas[] = "${first}:\n"
                               "  replicas: 1\n"
                               "  restartPolicy: OnFailure\n"
                               "  template:\n"
                               "    spec:\n"
                               "      @pod\n"
                               "Worker:\n"
                               "  replicas: ${others}\n"
                               "  restartPolicy: OnFailure\n"
                               "  template:\n"
                               "    spec:\n"
                               "      @pod\n";

static const char job_spec[] = "completions: ${workers}\n"
                               "parallelism: ${workers}\n"
                               "completionMode: Indexed\n"
                               "@backoff\n"
                               "template:\n"
                               "  metadata:\n"
                               "    labels: {app.kubernetes.io/name: trireme, app.kubernetes.io/instance: ${name}}\n"
                               "  spec:\n"
                               "    @pod\n";

static const char job[] = "@config-map\n"
                          "@service\n"
                          "---\n"
                          "apiVersion: batch/v1\n"
                          "kind: Job\n"
                          "metadata:\n"
                          "  name: ${name}\n"
                          "  labels: {app.kubernetes.io/name: trireme, app.kubernetes.io/instance: ${name}}\n"
                          "spec:\n"
                          "  @job-spec\n";

static const char elastic[] = "@kind-job\n"
                              "@store\n";

static const char jobset[] = "@config-map\n"
                             "---\n"
                             "apiVersion: jobset.x-k8s.io/v1alpha2\n"
                             "kind: JobSet\n"
                             "metadata:\n"
                             "  name: ${name}\n"
                             "spec:\n"
                             "  network: {enableDNSHostnames: true, publishNotReadyAddresses: true}\n"
                             "  failurePolicy: {maxRestarts: ${restarts}}\n"
                             "  replicatedJobs:\n"
                             "    - name: workers\n"
                             "      replicas: 1\n"
                             "      template:\n"
                             "        spec:\n"
                             "          @job-spec\n";

static const char trainjob[] = "@config-map\n"
                               "---\n"
                               "apiVersion: trainer.kubeflow.org/v1alpha1\n"
                               "kind: ClusterTrainingRuntime\n"
                               "metadata:\n"
                               "  name: ${name}-runtime\n"
                               "  labels: {trainer.kubeflow.org/framework: trireme}\n"
                               "spec:\n"
                               "  mlPolicy:\n"
                               "    numNodes: ${workers}\n"
                               "    torch: {}\n"
                               "  template:\n"
                               "    spec:\n"
                               "      replicatedJobs:\n"
                               "        - name: node\n"
                               "          template:\n"
                               "            metadata:\n"
                               "              labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}\n"
                               "            spec:\n"
                               "              @backoff\n"
                               "              template:\n"
                               "                spec:\n"
                               "                  @pod\n"
                               "---\n"
                               "apiVersion: trainer.kubeflow.org/v1alpha1\n"
                               "kind: TrainJob\n"
                               "metadata:\n"
                               "  name: ${name}\n"
                               "spec:\n"
                               "  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: "
                               "${name}-runtime}\n"
                               "  trainer: {numNodes: ${workers}, numProcPerNode: 1}\n";

static const char pytorchjob[] = "@config-map\n"
                                 "---\n"
                                 "apiVersion: kubeflow.org/v1\n"
                                 "kind: PyTorchJob\n"
                                 "metadata:\n"
                                 "  name: ${name}\n"
                                 "spec:\n"
                                 "  runPolicy: {backoffLimit: ${backoff}}\n"
                                 "  pytorchReplicaSpecs:\n"
                                 "    @replicas\n";

static const char tfjob[] = "@config-map\n"
                            "---\n"
                            "apiVersion: kubeflow.org/v1\n"
                            "kind: TFJob\n"
                            "metadata:\n"
                            "  name: ${name}\n"
                            "spec:\n"
                            "  runPolicy: {backoffLimit: ${backoff}}\n"
                            "  tfReplicaSpecs:\n"
                            "    @replicas\n";

/* No mpirun: each pod finds itself in the list of hosts, which the operator shows to its launcher alone. */
static const char mpijob[] = "@config-map\n"
                             "---\n"
                             "apiVersion: v1\n"
                             "kind: ConfigMap\n"
                             "metadata:\n"
                             "  name: ${name}-hosts\n"
                             "data:\n"
                             "  hosts: |\n"
                             "    %hosts\n"
                             "---\n"
                             "apiVersion: kubeflow.org/v2beta1\n"
                             "kind: MPIJob\n"
                             "metadata:\n"
                             "  name: ${name}\n"
                             "spec:\n"
                             "  slotsPerWorker: 1\n"
                             "  runLauncherAsWorker: true\n"
                             "  launcherCreationPolicy: AtStartup\n"
                             "  runPolicy: {cleanPodPolicy: Running, backoffLimit: ${backoff}}\n"
                             "  mpiReplicaSpecs:\n"
                             "    @replicas\n";

const tri_k8s_block tri_k8s_blocks[] = {
    {"nothing", ""},
    {"config-map", config_map},
    {"service", service},
    {"store", store},
    {"safe", safe},
    {"confined", confined},
    {"env-token", env_token},
    {"env-index", env_index},
    {"env-elastic", env_elastic},
    {"env-hosts", env_hosts},
    {"pod", pod},
    {"replicas", replicas},
    {"job-spec", job_spec},
    {"kind-job", job},
    {"kind-elastic", elastic},
    {"kind-jobset", jobset},
    {"kind-trainjob", trainjob},
    {"kind-pytorchjob", pytorchjob},
    {"kind-tfjob", tfjob},
    {"kind-mpijob", mpijob},
    {NULL, NULL},
};
