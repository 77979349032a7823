import { deployExamples } from './examples-deploy.ts'
import { otherExamples } from './examples-other.ts'
import { authority, id, time } from './example-values.ts'

// A body for each operation that takes one and has no `example` of its own, by the operation's id: what the reference
// prefills. Each is accepted as it is, where the ids are those of things that exist. A test validates them.

const password = 'correct horse battery staple'
const limits = { max_cpu_cores: 16, max_ram_gib: 64 }
const healthCheck = { command: ['/bin/check'], interval_sec: 10 }

const instance = {
  sizes: { cpu_cores: 2, memory_mib: 1024 },
  stop: { grace_sec: 10 },
  move: { grace_sec: 10 },
  nic: { subnet_id: id },
  vars: { config_vars: { LOG_LEVEL: 'info', GREETING: 'hello' } },
  disk: { disk_id: id, mount_path: '/data' },
  exec: { command: ['sh', '-c', 'uname -r'], timeout_sec: 10 },
  database: { database_id: id, config_var: 'DATABASE_URL' },
}

const identity = {
  logIn: { email: 'owner@example.com', password },
  changePassword: { current_password: password, new_password: 'another horse battery staple' },
  confirmAuthenticator: { otp: '123456' },
  deleteAccountAuthenticator: { password },
  inviteUser: { email: 'ada@example.com', name: 'Ada Lovelace', roles: ['developer'] },
  updateUser: { roles: ['viewer'] },
  acceptInvitation: { token: 'the-token-of-the-mail', password },
  requestPasswordReset: { email: 'ada@example.com' },
  resetPassword: { token: 'the-token-of-the-mail', password },
  createApiClient: { name: 'ci', scopes: ['containers:read', 'containers:create'], expires_in_days: 90 },
  updateApiClient: { scopes: ['containers:read'] },
  requestToken: { grant_type: 'client_credentials', scope: 'containers:read' },
  createRole: {
    name: 'deployer',
    description: 'Starts and stops containers',
    permissions: ['containers:read', 'containers:update'],
  },
  updateRole: { permissions: ['containers:read'] },
  grantRolePermission: { permission: 'disks:read' },
  createHost: { name: 'host-2' },
  createTenant: { name: 'Example Ltd', owner: { email: 'ada@example.com', name: 'Ada Lovelace' }, limits },
  updateTenant: { name: 'Example plc' },
  setTenantLimits: limits,
  receiveMailNotification: {
    Type: 'Notification',
    MessageId: id,
    TopicArn: 'arn:aws:sns:eu-central-1:123456789012:mail',
    Timestamp: time,
    Message: '{"notificationType":"Bounce"}',
    SignatureVersion: '2',
    Signature: 'c2lnbmF0dXJl',
    SigningCertURL: 'https://sns.eu-central-1.amazonaws.com/certificate.pem',
  },
}

const compute = {
  createContainer: {
    name: 'hello',
    image: 'keelson/hello:1',
    cpu_cores: 0.1,
    memory_mib: 64,
    ports: [{ container_port: 8080 }],
    tags: { env: 'prod' },
  },
  updateContainer: { memory_mib: 128, tags: { env: 'prod', team: 'blue' } },
  stopContainer: instance.stop,
  rescheduleContainer: instance.move,
  attachContainerNic: instance.nic,
  setContainerConfigVars: instance.vars,
  attachContainerDisk: instance.disk,
  execContainer: instance.exec,
  attachContainerDatabase: instance.database,
  createMicrovm: {
    name: 'worker',
    image: 'keelson/hello:1',
    cpu_cores: 1,
    memory_mib: 256,
    root_disk_gib: 2,
    health_check: healthCheck,
  },
  updateMicrovm: { memory_mib: 512 },
  stopMicrovm: instance.stop,
  rebootMicrovm: instance.stop,
  forkMicrovm: { name: 'worker-2' },
  rescheduleMicrovm: instance.move,
  attachMicrovmNic: instance.nic,
  setMicrovmConfigVars: instance.vars,
  attachMicrovmDisk: instance.disk,
  execMicrovm: instance.exec,
  attachMicrovmDatabase: instance.database,
  createVm: { name: 'bastion', image: 'debian-12', root_disk_gib: 10, ...instance.sizes },
  updateVm: { memory_mib: 2048 },
  stopVm: instance.stop,
  rebootVm: instance.stop,
  rescheduleVm: instance.move,
  attachVmNic: instance.nic,
  attachVmDisk: instance.disk,
  execVm: instance.exec,
  createDisk: { name: 'data', size_gib: 10, tags: { env: 'prod' } },
  updateDisk: { size_gib: 20 },
  migrateDisk: { target_host_id: id },
  createDiskSnapshot: { name: 'before-upgrade' },
}

const network = {
  createVpc: { name: 'main', cidr: '10.20.0.0/16' },
  updateVpc: { tags: { env: 'prod' } },
  createSubnet: { name: 'web', vpc_id: id, cidr: '10.20.1.0/24' },
  updateSubnet: { nat: false },
  attachDhcpConfig: { range_start: '10.20.1.100', range_end: '10.20.1.200', lease_time_sec: 3600 },
  createLoadBalancer: { name: 'front', subnet_id: id, listeners: [{ port: 80, protocol: 'http' }] },
  updateLoadBalancer: { replicas: 2 },
  rescheduleLoadBalancer: {},
  createLoadBalancerRoute: {
    name: 'shop',
    host_match: 'shop.example.com',
    path_match: '/',
    path_match_type: 'prefix',
    backend_port: 8080,
    targets: [{ nic_id: id, weight: 1 }],
  },
  updateLoadBalancerRoute: { request_timeout_sec: 60 },
  createCertificate: { name: 'shop', domains: ['shop.example.com'] },
  updateCertificate: { tags: { env: 'prod' } },
  createCaTrust: { name: 'internal', certificates_pem: authority },
  updateCaTrust: { name: 'internal-2' },
}

export const examples: Record<string, unknown> = {
  ...identity,
  ...compute,
  ...network,
  ...deployExamples,
  ...otherExamples,
}
