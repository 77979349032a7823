import { spawnSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { isSuppressed } from '../../models/mail/suppressions.ts'
import { type Aws, openAws } from '../support/aws.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../../script/lib/free-port.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { facts, mailTopic } from '../support/stack.ts'
import { makeOperator } from '../support/tenants.ts'
import { openTlsProxy, type TlsProxy } from '../support/tls-proxy.ts'
import { bounce, complaint, openTopic, type TestTopic } from '../support/topic.ts'

// The examples of docs/mail.md, pasted into a shell as an operator would, by the `aws` command and a server that speaks to it as
// Amazon's does. The API is behind a proxy with TLS, as the page asks for.

// The page is for an operator who has this command, which the platform neither needs nor installs.
const hasAws = spawnSync('aws', ['--version']).status === 0
if (!hasAws) console.warn('The test of docs/mail.md is skipped: there is no `aws` on the PATH.')
const withAws = hasAws ? describe : describe.skip

let topic: TestTopic
let proxy: TlsProxy
let aws: Aws
let shell: ReturnType<typeof openShell>
withAws('docs/mail.md', () => {
  beforeAll(async () => {
    topic = await openTopic()
    const port = await freePort()
    proxy = await openTlsProxy(port, Number(new URL(facts().api_url).port))
    aws = await openAws(topic, await readFile(proxy.caFile, 'utf8'))
    const { token: TOKEN } = await makeOperator()
    const API = `https://127.0.0.1:${port}`
    shell = openShell({ API, TOKEN, CURL_CA_BUNDLE: proxy.caFile, ...aws.env })
  })
  afterAll(async () => {
    await shell?.close()
    await aws?.close()
    await proxy?.close()
    await topic?.close()
  })

  test('reports of bounces and complaints suppress addresses, and one gets mail again', async () => {
    const [subscribed = '', lifted = '', ...rest] = blocksOf(await pageOf('mail'))
    expect(rest).toEqual([])
    expect(await shell.paste(subscribed)).toContain('"SubscriptionArn": "pending confirmation"')
    // The stack's API has this topic in its settings.
    expect(await shell.paste('echo $TOPIC')).toBe(mailTopic.arn)
    await eventually(() => aws.isConfirmed(mailTopic.arn))
    const [gone, angry] = [`${newId()}@example.com`, `${newId()}@example.com`]
    expect(await aws.report('example.com', 'Bounce', bounce([gone]))).toMatchObject([{ recorded: 1 }])
    expect(await aws.report('example.com', 'Complaint', complaint([angry]))).toMatchObject([{ recorded: 1 }])
    expect([await isSuppressed(gone), await isSuppressed(angry)]).toEqual([true, true])

    expect(await shell.paste(lifted.replaceAll('ada@example.com', gone))).toBe('')
    expect([await isSuppressed(gone), await isSuppressed(angry)]).toEqual([false, true])
  })
})
