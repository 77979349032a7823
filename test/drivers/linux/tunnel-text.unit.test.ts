import { isIPv6 } from 'node:net'
import { expect, test } from '@jest/globals'
import { newTunnelKeys, tunnelAddress, tunnelKeyForm } from '../../../drivers/linux/tunnel-keys.ts'
import {
  greetedLater,
  peerChanges,
  silentPeers,
  tunnelConfiguration,
  tunnelPeers,
} from '../../../drivers/linux/tunnel.ts'

const key = (byte: number): string => Buffer.alloc(32, byte).toString('base64')
const own = { keys: { public_key: key(1), private_key: key(9) }, port: 7084, program: '' }
const peer = (byte: number) => ({ address: `10.99.0.${byte}`, tunnel_key: key(byte) })

test('a key has one address, which no other key has, in the range of unique local addresses', () => {
  const made = Array.from({ length: 50 }, () => newTunnelKeys())
  const addresses = made.map(({ public_key }) => tunnelAddress(public_key))
  expect(new Set(addresses).size).toBe(made.length)
  for (const address of addresses) expect([isIPv6(address), address.slice(0, 2)]).toEqual([true, 'fd'])
  expect(tunnelAddress(key(1))).toBe('fdc5:7cc3:b55d:39f9:a6f7:72f5:8e3:821e')
  for (const { public_key, private_key } of made) {
    expect(public_key).toMatch(tunnelKeyForm)
    expect(private_key).toMatch(tunnelKeyForm)
    expect(public_key).not.toBe(private_key)
  }
})

test('an address is written as the kernel writes it', () => {
  // Groups that begin with zeros are common: one in sixteen.
  const all = Array.from({ length: 200 }, (_, i) => tunnelAddress(`${i}`)).join(' ')
  expect(all).not.toMatch(/[:]0[\da-f]/)
})

test('the configuration takes from each peer its own address alone, and knows no host without a key or itself', () => {
  const vouched = { address: '10.99.0.7', tunnel_key: null }
  const peers = tunnelPeers(own, [peer(2), peer(3), vouched, peer(1)])
  expect(tunnelConfiguration(own, peers)).toBe(
    `[Interface]
PrivateKey = ${key(9)}
ListenPort = 7084
[Peer]
PublicKey = ${key(2)}
Endpoint = 10.99.0.2:7084
PersistentKeepalive = 25
AllowedIPs = ${tunnelAddress(key(2))}/128
[Peer]
PublicKey = ${key(3)}
Endpoint = 10.99.0.3:7084
PersistentKeepalive = 25
AllowedIPs = ${tunnelAddress(key(3))}/128
`,
  )
})

test('peers that come, go and move are changed one by one', () => {
  const before = tunnelPeers(own, [peer(2), peer(3), peer(4)])
  const after = tunnelPeers(own, [peer(2), { ...peer(3), address: '10.99.0.33' }, peer(5)])
  expect(peerChanges(before, after).join(' ')).toBe(
    [
      `peer ${key(4)} remove`,
      `peer ${key(3)} endpoint 10.99.0.33:7084 persistent-keepalive 25 allowed-ips ${tunnelAddress(key(3))}/128`,
      `peer ${key(5)} endpoint 10.99.0.5:7084 persistent-keepalive 25 allowed-ips ${tunnelAddress(key(5))}/128`,
    ].join(' '),
  )
  expect(peerChanges(after, after)).toEqual([])
})

test('of two hosts, the one with the greater key greets a new peer later', () => {
  const [low, high] = [key(1), key(2)].toSorted()
  const of = (mine = '', other = '') => {
    const settings = { ...own, keys: { public_key: mine, private_key: key(9) } }
    return { settings, peers: tunnelPeers(settings, [{ address: '10.99.0.2', tunnel_key: other }]) }
  }
  const [first, second] = [of(low, high), of(high, low)]
  expect(greetedLater(first.settings, null, first.peers)).toEqual([])
  expect(greetedLater(second.settings, null, second.peers)).toEqual([low])
  expect(greetedLater(second.settings, second.peers, second.peers)).toEqual([])
  expect([...silentPeers(second.peers, [low ?? '']).values()]).toEqual([
    `endpoint 10.99.0.2:7084 persistent-keepalive 0 allowed-ips ${tunnelAddress(low ?? '')}/128`,
  ])
})
