import { setTimeout } from 'node:timers/promises'
import { createTransport } from 'nodemailer'
import type { Logger } from '../lib/log.ts'
import { claimDueMail, type ClaimedMail, settleMail } from '../models/identity/mails.ts'
import { isSuppressed } from '../models/mail/suppressions.ts'

export interface MailerSettings {
  KEELSON_SMTP_URL?: string | undefined
  KEELSON_MAIL_FROM: string
}

// A person waits for an invitation, not for milliseconds.
const lookEveryMs = 1_000

/**
 * Sends what models/identity/mails.ts holds. A worker that is killed between sending and noting it sends again: a
 * mail may come twice, but never gets lost. Several workers take turns, mail by mail.
 */
export function startMailer(settings: MailerSettings, log: Logger): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const send = sender(settings, log)

  async function run(): Promise<void> {
    while (!signal.aborted) {
      const mail = await claimDueMail().catch((error: unknown) => {
        log.warn({ err: error }, 'mail cannot be looked for')
        return null
      })
      if (mail) await deliver(mail)
      else await setTimeout(lookEveryMs, undefined, { signal }).catch(() => undefined)
    }
  }

  async function deliver(mail: ClaimedMail): Promise<void> {
    const ids = { mail_id: mail.id, tries: mail.tries }
    try {
      if (await isSuppressed(mail.to)) {
        await settleMail(mail.id, 'suppressed')
        log.info(ids, 'mail not sent: its address gets no more mail')
        return
      }
      await send(mail)
      await settleMail(mail.id, 'sent')
      log.info(ids, 'mail sent')
    } catch (error) {
      const left = mail.triesLeft
      log[left ? 'warn' : 'error'](
        { err: error, ...ids },
        left ? 'mail not sent; it is tried again' : 'mail given up',
      )
      if (!left) await settleMail(mail.id, 'failed').catch(() => undefined) // it is claimed and given up again
    }
  }

  const running = run()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}

/** By SMTP where there is a server; else into the log, so that a machine without one can be used. */
function sender({ KEELSON_SMTP_URL: url, KEELSON_MAIL_FROM: from }: MailerSettings, log: Logger) {
  if (!url) {
    return async ({ to, subject, text }: ClaimedMail): Promise<void> => {
      log.info({ to, subject, text }, 'mail, which no SMTP server is set for')
    }
  }
  const transport = createTransport(url)
  return async ({ id, to, subject, text }: ClaimedMail): Promise<void> => {
    await transport.sendMail({ from, to, subject, text, messageId: `<${id}@keelson>` })
  }
}
