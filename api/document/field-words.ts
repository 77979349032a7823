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

const limit = (what: string): string => `The most ${what} that the tenant may have`

export const fieldWords: Record<string, string> = {
  status_reason: 'Why it is in this status; null: nothing is wrong',

  // Instances
  cpu_cores: 'CPU cores that it may use; a fraction of a core is possible where the schema allows it',
  cpu_milli: 'Thousandths of a CPU core',
  mount_path: 'Where it is mounted: an absolute path',
  log_cap_mib: 'Output that stays on its host, in MiB; older output goes to the archive',
  changes: 'What this changes, or would change with `dry_run`',
  image_digest: 'The digest of the image with which it runs; null until it was pulled',
  restart_policy:
    'Whether it is started again after its command has ended: always, after a failure, or never',
  restart_count: 'How often it was started again after its command had ended',
  desired_state: 'The state in which the platform keeps it',
  entrypoint: 'The program before `command`; empty: the image’s own',
  config_vars: 'Environment variables, by name',
  container_port: 'The port on which its program listens',
  host_port: 'The port at `host_address` on which clients reach it',
  host_address: 'The address at which clients reach its published ports',
  exit_code: 'Of its last end; above 128: ended by a signal. Null: it has not ended',
  attached_to: 'The instance that has it; null: none',
  health_check: 'How it is found out whether it serves',
  interval_sec: 'Seconds between two checks',
  timeout_sec: 'Seconds after which an attempt is ended, and has failed',
  retries: 'Failed checks in a row that make it unhealthy',
  start_period_sec: 'Seconds after the start in which failed checks do not count',
  healthy_after: 'Passed checks in a row that make it healthy',
  unhealthy_after: 'Failed checks in a row that make it unhealthy',
  new_disk_id: 'The disk that the snapshot becomes',
  new_disk_uuid: 'The same as `new_disk_id`',
  series: 'One for each thing that is measured',
  step_sec: 'Seconds between two points of a series',
  unit: 'The unit of the values, such as `bytes`',
  data: 'What the entry is about, by its kind: ids, names and numbers',

  // Networks and load balancers
  gateway_ip: 'The address of the subnet’s router',
  dhcp_config: 'What DHCP tells NICs of the subnet; null: none is attached',
  range_end: 'The last address that DHCP gives',
  lease_time_sec: 'Seconds after which an address is asked for again',
  domain_name: 'The domain of the names in the subnet',
  static_leases: 'Addresses that certain NICs get',
  backend_port: 'The port of targets that name none',
  backend_tls: 'Whether targets are reached over TLS',
  backend_sni: 'The host name that targets get with TLS; null: none',
  redirect_status: 'The status with which requests are redirected',
  request_headers_add: 'Headers that requests get on their way to a target',
  request_headers_remove: 'Headers that requests lose on their way to a target',
  response_headers_add: 'Headers that responses get on their way to the client',
  response_headers_remove: 'Headers that responses lose on their way to the client',
  weight: 'The share of requests, relative to the other targets’; 0: none',
  health_state: 'What checks found last',
  subjects: 'The authorities’ names',
  source: 'Whether it was uploaded, or comes from an authority',
  client: 'The address of the client',
  bytes_in: 'Bytes of the request',
  bytes_out: 'Bytes of the response',

  // Deploy servers
  instance_type: 'The size of the machine',
  worker_instance_type: 'The size of each worker',
  app_instance_type: 'The size of the control plane',
  worker_disk_gib: 'The disk of each worker, in GiB',
  worker_count: 'Machines that run applications, beside the control plane',
  workers: 'The machines that run applications',
  worker: 'The name of the machine that has it',
  control_plane: 'The machine that manages the others',
  dashboard_url: 'The page for its root login',
  within_sec: 'Seconds in which it must serve after its start',
  stop_grace_sec: 'Seconds that a replica gets to end by itself',
  phases: 'When each phase began',
  envs: 'Environment variables, by name',
  frequency: 'A cron expression of five fields',
  timezone: 'An IANA time zone',
  overlaps: 'Whether a run begins while the one before is open',
  internal_port: 'The port in its connection string; null until it has one',
  public_port: 'The port at `public_host`; null: it is not published',
  point_in_time: 'Whether, and where, its log is kept, by which it is recovered to a moment',
  config_var: 'The config var that gets its URL',
  redirect_to: 'The host name to which requests are redirected; null: none',
  redirect_to_https: 'Whether plain HTTP is redirected to HTTPS',
  tls: 'Whether it is served over HTTPS, with a certificate of its own',
  dockerfile: 'The path of the Dockerfile in the artifact; null: `Dockerfile`, or a generated one',
  build_args: 'Arguments of the build: part of the image’s history',
  secret_names: 'The names of the secrets that the build had',
  docker_compose: 'A compose file, in YAML',
  change: 'What an application of the new text does to it',
  what: 'What is served there',
  response_status: 'The HTTP status of the receiver’s answer; null: there was none',

  // AI, tools and retrieval
  serves: 'What a connector to it is for',
  verification_url: 'The page on which the user enters the code',
  authorize_url: 'The page on which the user agrees',
  configured: 'Whether the platform has a key for it',
  spec_sha256: 'SHA-256 of the spec’s canonical JSON (RFC 8785)',
  trigger: 'What began the run',
  node: 'The node’s name in the spec',
  item: 'The index of the map’s item, from 0',
  repeat: 'Which of the repetitions of its case',
  repeats: 'How often the case is run',
  min_pass: 'How many of the repetitions must pass',
  p95_ms: '95 % of the runs took no longer, in ms; null: there were none',
  canary: 'The deployment that gets a part of the runs; null: none',
  canary_key: 'Runs with the same key go to the same deployment, once a canary takes some',
  bounds: 'What the canary’s runs may take, compared with the primary’s',
  p95_ratio: 'How many times as long as the primary’s its p95 may be; null: any',
  cost_ratio: 'How many times as much as the primary’s its runs may cost; null: any',
  verdict: 'How it ended: `inconclusive` says neither',
  valid: 'Whether it can be published',
  require_eval_pass: 'Whether a canary is promoted only after its eval cases have passed',
  assertion: 'What the output must satisfy',
  approved: 'The decision: the run goes on, or the node fails',
  temperature: 'As the provider’s API defines it',
  top_p: 'As the provider’s API defines it',
  stop: 'Texts at which the model stops',
  seed: 'As the provider’s API defines it',
  reasoning_effort: 'As the provider’s API defines it',
  purpose_kind: 'What the calls were for',
  purpose_id: 'The run or the thing that made the calls',
  input_schema: 'A JSON Schema of what a call gives',
  output_schema: 'A JSON Schema of what a call returns; null: none',
  annotations: 'What the server says of the tool’s effects; null: nothing',
  last_probe: 'What the last probe found; null: there was none',
  stages: 'The steps of the probe, in their order',
  remedy: 'What to do about it',
  authorization_servers: 'Where a login can be had',
  protocol_version: 'The version of MCP on which both sides agreed; null: it did not come to that',
  tools_count: 'How many tools the server offers; null: it did not come to that',
  truncated: 'Whether the server has more than was looked at',
  fault: 'What is wrong; null: nothing',
  ok: 'Whether it did what it should',
  test_url: 'The address that is probed instead of the tool’s own',
  subnet_id: 'The subnet of the microVM in which the command runs',
  by: 'What asked for the probe',
  embedder: 'What makes vectors of its texts',
  dimensions: 'The length of the vectors',
  metadata: 'Values of fields of the collection’s metadata schema',
  mode: 'By meaning and by words, or by one of them',
  score: 'Higher is better; comparable within one search alone',
  rank: 'The place in this part of the search, from 1',
  last_page: 'The page on which it ends',
  last_line: 'The line on which it ends',
  last_pointer: 'The JSON pointer of the last value',
  pointer: 'A JSON pointer (RFC 6901) to the value',
  sizes: 'What is in it; null: it was not asked yet',
  keep: 'How many snapshots are kept',

  // Identity and platform
  otp: 'The present code of the authenticator, or a recovery code',
  otpauth_url: 'For authenticators that scan a code',
  remember_token: 'Of a former login with `remember`: takes the place of the code',
  expires_in_days: 'After how many days its tokens are refused; null: never',
  error_description: 'Why, for people',
  detail: 'Why, for people',
  request_id: 'Names the request in logs and audit events',
  problem_code: 'The code of the refusal; null: it was done',
  generation: 'Counts the keys',
  workflow_id: 'The id of its workflow in Temporal',
  capacity: 'What the host has for instances',
  reserved: 'What instances and disks on it have reserved',
  accelerator: '`kvm`, or `tcg` on a machine without it: some ten times slower',
  kernel: 'The kernel of its microVMs',
  sha256: 'SHA-256 of the content, in hex',

  // Limits
  max_archive_gib: limit('archived output, in GiB as it is stored,'),
  max_backup_gib: limit('backups of databases in the platform’s store, in GiB,'),
  max_certificates: limit('certificates, and as many trusted authorities,'),
  max_connectors: limit('connectors'),
  max_cpu_cores: limit('CPU cores, of all instances,'),
  max_deploy_servers: limit('deploy servers'),
  max_evals_per_workflow: limit('eval cases of one workflow'),
  max_llm_tokens_month: limit('tokens of models in a calendar month (UTC)'),
  max_load_balancers: limit('load balancers'),
  max_rag_documents: limit('documents in its store'),
  max_rag_gib: limit('content of documents, in GiB,'),
  max_ram_gib: limit('memory, of all instances, in GiB,'),
  max_storage_gib: limit('disks, in GiB,'),
  max_subnets: limit('subnets'),
  max_tools: limit('tools'),
  max_vms_per_vpc: limit('members of one VPC'),
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
