// What fields of the document mean, where their schemas do not say it: a name means the same wherever it is here.

/** Names that say it themselves, with their type, their unit and what they are in. The last line: of Amazon SNS. */
export const plainNames = new Set(
  `name tags items status kind type message code title description url path method host email
  total id error errors cause state reason outcome version
  user owner username password disabled enabled roles permissions permission scopes scope address user_agent
  memory_mib disk_gib size_gib size_bytes root_disk_gib received_bytes unpacked_bytes duration_ms
  command args image digest tag headers env protocol port ports line document text query
  provider model login container containers replicas nics disks volumes targets listeners endpoint region bucket
  ip_address mac_address cidr limits usage files collections documents chunks tools domains
  client_id client_secret token access_token token_type token_endpoint jwks_uri grant_type issuer keys
  actor_id actor_kind resource resource_id resource_kind resource_name verb action
  stream phase stage engine transport server auth secret builtin category documentation
  health read_only start target connector input spec cases groups
  failed succeeded cancelled ended all calls passes fails worse same added removed
  page vector rerank eq in gt gte lt lte exists low high
  database_name access_key_id registry_user root_password certificates_pem certificate_pem
  ssh_keys user_code current_password input_tokens output_tokens step
  Type MessageId TopicArn Timestamp Message SignatureVersion Signature SigningCertURL Subject SubscribeURL Token`.split(
    /\s+/,
  ),
)

const limit = (what: string, how = ''): string => `The most ${what} that the tenant may have${how}`

export const fieldWords: Record<string, string> = {
  status_reason: 'Why it is in this status; null: nothing is wrong',

  // Instances
  cpu_cores: 'CPU cores; a fraction of a core is possible where the schema allows it',
  cpu_milli: 'Thousandths of a CPU core',
  mount_path: 'The absolute path of the mount',
  log_cap_mib: 'The output that stays on the host, in MiB; older output moves to the archive',
  changes: 'What this changes, or would change with `dry_run`',
  image_digest: 'The digest of the image with which it runs; null until the image is pulled',
  restart_policy:
    'Whether the instance restarts after its command has ended: always, after a failure, or never',
  restart_count: 'How often the instance was restarted after its command had ended',
  desired_state: 'The state in which the platform keeps the instance',
  entrypoint: 'The program to which `command` gives the arguments; empty: the image’s own',
  config_vars: 'Environment variables, by name',
  container_port: 'The port on which the instance listens',
  host_port: 'The port at `host_address` on which clients reach it',
  host_address: 'The address at which clients reach its published ports',
  exit_code: 'The last exit code; above 128: a signal ended the process. Null: there is none',
  attached_to: 'The instance that has it; null: none',
  health_check: 'How the platform checks health',
  interval_sec: 'Seconds between two checks',
  timeout_sec: 'Seconds after which a check, run or build is ended and counts as failed',
  retries: 'Failed checks in a row that make it unhealthy',
  start_period_sec: 'Seconds after the start in which failed checks do not count',
  healthy_after: 'Passed checks in a row that make it healthy',
  unhealthy_after: 'Failed checks in a row that make it unhealthy',
  new_disk_id: 'The disk created from the snapshot',
  new_disk_uuid: 'The same as `new_disk_id`',
  series: 'One series for each metric',
  step_sec: 'Seconds between two points of a series',
  unit: 'The unit of the values, such as `bytes`',
  data: 'Details of the entry, which depend on its kind: ids, names and numbers',

  // Networks and load balancers
  gateway_ip: 'The address of the subnet’s router',
  dhcp_config: 'What DHCP tells NICs of the subnet; null: none is attached',
  range_end: 'The last address to lease to such interfaces',
  lease_time_sec: 'Seconds for which an address is leased',
  domain_name: 'The domain of the names in the subnet',
  static_leases: 'Fixed addresses of certain NICs',
  backend_port: 'The port of targets that name none',
  backend_tls: 'Whether targets are reached over TLS',
  backend_sni: 'The host name sent to targets in the TLS handshake (SNI); null: none',
  redirect_status: 'The status with which requests are redirected',
  request_headers_add: 'Headers added to requests on their way to a target',
  request_headers_remove: 'Headers removed from requests on their way to a target',
  response_headers_add: 'Headers added to responses on their way to the client',
  response_headers_remove: 'Headers removed from responses on their way to the client',
  weight: 'The share of requests, relative to the other targets’; 0: none',
  health_state: 'What the last health checks found',
  subjects: 'The authorities’ names',
  source: 'Whether the tenant uploaded the certificate (`upload`), or the platform obtains it (`acme`)',
  client: 'The address of the client',
  bytes_in: 'Bytes of the request',
  bytes_out: 'Bytes of the response',

  // Deploy servers
  instance_type: 'The size of the machine',
  worker_instance_type: 'The size of each worker',
  app_instance_type: 'The size of the control plane',
  worker_disk_gib: 'The disk of each worker, in GiB',
  worker_count: 'Machines that run applications, in addition to the control plane',
  workers: 'The machines that run applications',
  worker: 'The name of the machine that the line is from',
  control_plane: 'The machine that manages the others',
  dashboard_url: 'The page for its root login',
  within_sec: 'Seconds after which a release that does not serve is rolled back',
  stop_grace_sec: 'Seconds that a replica may take to end',
  phases: 'When each phase began',
  envs: 'Environment variables, by name',
  frequency: 'A cron expression of five fields',
  timezone: 'An IANA time zone',
  overlaps: 'Whether a run begins while the previous one is open',
  internal_port: 'The port in its connection string; null until it has one',
  public_port: 'The port at `public_host`; null: it is not published',
  point_in_time: 'Whether, and where, the log for recovery to any point in time is kept',
  config_var: 'The config var that gets the database’s URL',
  redirect_to: 'The host name to which requests are redirected; null: none',
  redirect_to_https: 'Whether plain HTTP is redirected to HTTPS',
  tls: 'Whether it is served over HTTPS, with a certificate of its own',
  dockerfile: 'The path of the Dockerfile in the artifact; null: `Dockerfile`, or a generated one',
  build_args: 'Arguments of the build: part of the image’s history',
  secret_names: 'The names of the secrets that the build had',
  docker_compose: 'A compose file, in YAML',
  change: 'What the new compose file does to it',
  what: 'What is served there',
  response_status: 'The HTTP status of the receiver’s answer; null: there was none',

  // AI, tools and retrieval
  serves: 'What a connector to it is for',
  verification_url: 'The page on which the user enters the code',
  authorize_url: 'The page on which the user grants access',
  configured: 'Whether the platform has a key that seals secrets',
  spec_sha256: 'SHA-256 of the spec’s canonical JSON (RFC 8785)',
  trigger: 'What started the run',
  node: 'The node’s name in the spec',
  item: 'The index of the map’s item, from 0',
  repeat: 'The number of the repeat of its case',
  repeats: 'How many times the case is run',
  min_pass: 'How many of the repeats must pass',
  p95_ms: 'The duration that 95 % of these runs did not exceed, in ms; null: there were none',
  canary: 'The deployment that gets a part of the runs; null: none',
  canary_key: 'Runs with the same key go to the same deployment while a canary takes a part of the runs',
  bounds: 'What the canary’s runs may take, compared with the primary’s',
  p95_ratio: 'The largest p95 of the canary, as a multiple of the primary’s; null: any',
  cost_ratio: 'The highest cost of the canary’s runs, as a multiple of the primary’s; null: any',
  verdict: 'How it ended; `inconclusive`: neither passed nor failed',
  valid: 'Whether it can be published',
  require_eval_pass: 'Whether a canary is promoted only after its eval cases have passed',
  assertion: 'What the output must satisfy',
  approved: 'True: the run continues; false: the node fails',
  temperature: 'As the provider’s API defines it',
  top_p: 'As the provider’s API defines it',
  stop: 'Texts at which the model stops',
  seed: 'As the provider’s API defines it',
  reasoning_effort: 'As the provider’s API defines it',
  purpose_kind: 'What the calls were for',
  purpose_id: 'The run or other resource that made the calls',
  input_schema: 'The JSON Schema of a call’s input',
  output_schema: 'The JSON Schema of a call’s output; null: none',
  annotations: 'What the server says about the tool’s effects; null: nothing',
  last_probe: 'What the last probe found; null: there was none',
  stages: 'The steps of the probe, in their order',
  remedy: 'What to do about it',
  authorization_servers: 'The servers at which to log in',
  protocol_version: 'The version of MCP on which both sides agreed; null: the probe did not get that far',
  tools_count: 'How many tools the server offers; null: the probe did not get that far',
  truncated: 'Whether the server has more tools than were read',
  fault: 'What is wrong; null: nothing',
  ok: 'Whether it succeeded',
  test_url: 'The URL that is probed instead of the tool’s own',
  subnet_id: 'The subnet of the microVM in which the command runs',
  by: 'What asked for the probe',
  embedder: 'What turns its texts into vectors',
  dimensions: 'The length of the vectors',
  metadata: 'Values for fields of the collection’s metadata schema',
  mode: 'How to search: by meaning (`vector`), by words (`text`), or by both (`hybrid`)',
  score: 'Higher is better; scores of different searches cannot be compared',
  rank: 'The place in this part of the search, from 1',
  last_page: 'The page on which it ends',
  last_line: 'The line on which it ends',
  last_pointer: 'The JSON pointer of the last value',
  pointer: 'A JSON pointer (RFC 6901) to the value',
  sizes: 'What is in the store; null: the store was not asked yet',
  keep: 'How many snapshots are kept',

  // Identity and platform
  otp: 'The current code of the authenticator app, or a recovery code',
  otpauth_url: 'The URL for authenticator apps that scan a QR code',
  remember_token: 'The token of an earlier login with `remember`; it replaces the code',
  expires_in_days: 'Days until the API client expires and its tokens are refused; null: never',
  error_description: 'The reason, for people',
  detail: 'The reason, for people',
  request_id: 'Names the request in logs and audit events',
  problem_code: 'The problem code of a refused action; null: the action was done',
  generation: 'The number of the key, counted from the first',
  workflow_id: 'The id of its workflow in Temporal',
  capacity: 'What the host has for instances',
  reserved: 'What instances and disks on it have reserved',
  accelerator: '`kvm`, or `tcg` on a machine without KVM, which is about ten times slower',
  kernel: 'The kernel of its microVMs',
  sha256: 'SHA-256 of the content, in hex',

  // Limits
  max_archive_gib: limit('archived output', ', in GiB as it is stored'),
  max_backup_gib: limit('backups of databases', ' in the platform’s store, in GiB'),
  max_certificates: limit('certificates', ', and the most CA trusts'),
  max_connectors: limit('connectors'),
  max_cpu_cores: limit('CPU cores', ' in all instances together'),
  max_deploy_servers: limit('deploy servers'),
  max_evals_per_workflow: limit('eval cases', ' in one workflow'),
  max_llm_tokens_month: 'The most tokens of models that the tenant may use in a calendar month (UTC)',
  max_load_balancers: limit('load balancers'),
  max_rag_documents: limit('documents', ' in its retrieval store'),
  max_rag_gib: limit('content of documents', ' in its retrieval store, in GiB'),
  max_ram_gib: limit('memory', ' in all instances together, in GiB'),
  max_storage_gib: limit('disk space', ', in GiB'),
  max_subnets: limit('subnets'),
  max_tools: limit('tools'),
  max_vms_per_vpc: limit('members', ' in one VPC'),
  max_vpcs: limit('VPCs'),
  max_workflow_versions: limit('published versions of workflows'),
  max_workflows: limit('workflows'),
}

type Json = Record<string, unknown>
const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A schema whose properties say what they mean, as far as a name says it. Its own words stay. */
export function withFieldWords(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withFieldWords)
  if (!isObject(schema)) return schema
  return Object.fromEntries(
    Object.entries(schema).map(([key, value]) => [
      key,
      key === 'properties' && isObject(value)
        ? Object.fromEntries(
            Object.entries(value).map(([name, property]) => [name, described(name, property)]),
          )
        : key === 'default' || key === 'enum' || key === 'examples'
          ? value
          : withFieldWords(value),
    ]),
  )
}

function described(name: string, property: unknown): unknown {
  const whole = withFieldWords(property)
  const words = fieldWords[name]
  return isObject(whole) && words !== undefined && !hasWords(whole) ? { ...whole, description: words } : whole
}

/** Whether a property says what it means: itself, or in what it is beside null. */
export const hasWords = (property: Json): boolean =>
  'description' in property ||
  ['anyOf', 'oneOf', 'allOf'].some((key) => {
    const parts = property[key]
    return Array.isArray(parts) && parts.some((part) => isObject(part) && hasWords(part))
  })
